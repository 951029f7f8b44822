# SPDX-License-Identifier: Apache-2.0
"""The simulated runner takes the time that its formula says."""

import numpy as np
import pytest
from numpy.typing import NDArray

from headway_server.engine.messages import Sampling
from headway_server.runner.protocol import Row
from headway_server.runner.simulated import SimulatedRunner, StepTime

TIME = StepTime(
    decode_base=10,
    per_row=1,
    per_kv_token=0.01,
    prefill_base=20,
    per_prompt_token=0.5,
    per_prompt_token_squared=0.001,
)


def row(tokens: int, start: int, samples: bool = True) -> Row:
    return Row("r", tuple(range(tokens)), start, (0,), samples, Sampling(seed=1))


@pytest.mark.parametrize(
    ("batch", "milliseconds"),
    [
        ([row(1, 99)], 10 + 1 + 1),
        ([row(1, 99), row(1, 299)], 10 + 2 + 4),
        ([row(100, 0)], 20 + 50 + 10),
        ([row(100, 100)], 20 + 50 + 30),
        ([row(1, 99), row(100, 0)], 20 + 1 + 1 + 50 + 10),
        ([row(1, 0)], 20 + 0.5 + 0.001),
    ],
)
def test_the_time_of_a_step(batch: list[Row], milliseconds: float) -> None:
    slept: list[float] = []
    SimulatedRunner(64, 10, step_time=TIME, sleep=slept.append).launch(batch)
    assert slept == [pytest.approx(milliseconds / 1000)]


def test_two_chunks_cost_as_many_token_pairs_as_one() -> None:
    whole = TIME.seconds([row(100, 0)])
    halves = TIME.seconds([row(50, 0)]) + TIME.seconds([row(50, 50)])
    assert halves - whole == pytest.approx(TIME.prefill_base / 1000)


def test_tokens_follow_from_the_sequence_and_avoid_what_must_not_be_drawn() -> None:
    never = frozenset(range(8))
    runner = SimulatedRunner(64, 10, never=never, sleep=lambda seconds: None)
    batch = [row(1, start) for start in range(1, 200)] + [row(5, 0, samples=False)]
    tokens = runner.launch(batch).result().tokens
    assert tokens[-1] is None
    assert set(tokens[:-1]) == {8, 9}
    assert runner.launch(batch[:1]).result().tokens == tokens[:1]


def test_the_capacity_is_whole_blocks() -> None:
    assert SimulatedRunner(70, 10, block_size=16).kv_capacity_tokens == 64


class OnlyEven:
    def fill(self, mask: NDArray[np.int32]) -> None:
        mask[:] = 0x55555555

    def accept(self, token: int) -> bool:
        return token % 2 == 0


def test_it_follows_a_grammar() -> None:
    runner = SimulatedRunner(64, vocab_size=50, never=frozenset({2, 4}), sleep=lambda _: None)
    rows = [Row("r", (n,), n, (0,), True, Sampling(), matcher=OnlyEven()) for n in range(40)]
    tokens = runner.launch(rows).result().tokens
    assert all(token is not None and token % 2 == 0 for token in tokens)
    assert len(set(tokens)) > 5
