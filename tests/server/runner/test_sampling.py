# SPDX-License-Identifier: Apache-2.0
"""Drawing a token: the parameters do what they say, and neighbours do not matter."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from headway_server.engine.messages import Sampling
from headway_server.runner.protocol import Row
from headway_server.runner.sampling import sample

PROBABILITIES = torch.tensor([0.05, 0.4, 0.1, 0.25, 0.2])
LOGITS = PROBABILITIES.log()


def row(position: int = 5, **sampling: Any) -> Row:
    return Row("r", (1,), position, (0,), True, Sampling(**{"seed": 1} | sampling))


def tokens_of(logits: torch.Tensor, rows: Sequence[Row]) -> list[int]:
    return [token for token in sample(logits, rows).tokens if token is not None]


def draw_many(count: int = 4000, **sampling: Any) -> Counter[int]:
    rows = [row(seed=seed, **sampling) for seed in range(count)]
    return Counter(tokens_of(LOGITS.expand(count, -1), rows))


def test_without_temperature_the_most_probable_token_is_taken() -> None:
    assert tokens_of(LOGITS[None], [row(temperature=0.0)]) == [1]


def test_with_temperature_1_tokens_come_as_often_as_the_model_says() -> None:
    counts = draw_many(temperature=1.0)
    for token, probability in enumerate(PROBABILITIES.tolist()):
        assert counts[token] / 4000 == pytest.approx(probability, abs=0.03)


def test_a_temperature_sharpens_or_flattens() -> None:
    assert draw_many(temperature=0.2)[1] > 3500
    assert draw_many(temperature=100.0)[1] < 1000


def test_top_k_keeps_the_k_most_probable() -> None:
    assert set(draw_many(temperature=1.0, top_k=2)) == {1, 3}
    assert set(draw_many(temperature=1.0, top_k=1)) == {1}
    assert set(draw_many(temperature=1.0, top_k=100)) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [(0.01, {1}), (0.39, {1}), (0.5, {1, 3}), (0.66, {1, 3, 4}), (0.94, {1, 3, 4, 2})],
)
def test_top_p_keeps_the_smallest_head_that_reaches_p(top_p: float, kept: set[int]) -> None:
    assert set(draw_many(temperature=1.0, top_p=top_p)) == kept


def test_top_p_counts_within_what_top_k_left() -> None:
    assert set(draw_many(temperature=1.0, top_k=2, top_p=0.6)) == {1}
    assert set(draw_many(temperature=1.0, top_k=2, top_p=0.63)) == {1, 3}


def test_min_p_keeps_what_is_probable_enough_beside_the_most_probable() -> None:
    assert set(draw_many(temperature=1.0, min_p=0.55)) == {1, 3}
    assert set(draw_many(temperature=1.0, min_p=0.2)) == {0, 1, 2, 3, 4} - {0}
    assert set(draw_many(temperature=1.0, min_p=1.0)) == {1}


def test_a_row_gets_the_same_token_alone_and_among_others() -> None:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(150, 50, generator=generator)
    rows = [
        row(position=n, seed=n % 7, temperature=n % 3 / 2, top_k=n % 5, top_p=1 - n % 4 / 5)
        for n in range(150)
    ]
    together = tokens_of(logits, rows)
    alone = [tokens_of(logits[n : n + 1], rows[n : n + 1])[0] for n in range(150)]
    assert together == alone


def test_another_position_and_another_seed_draw_anew() -> None:
    by_position = [row(position=n, temperature=1.0) for n in range(50)]
    by_seed = [row(seed=n, temperature=1.0) for n in range(50)]
    for rows in (by_position, by_seed):
        tokens = tokens_of(LOGITS.expand(50, -1), rows)
        assert len(set(tokens)) > 1
        assert tokens == tokens_of(LOGITS.expand(50, -1), rows)


def test_a_chunk_and_a_decode_row_at_the_same_position_draw_the_same() -> None:
    whole = Row("r", (1, 2, 3), 3, (0,), True, Sampling(1.0, seed=9))
    last = Row("r", (3,), 5, (0,), True, Sampling(1.0, seed=9))
    logits = torch.zeros(1, 1000)
    assert tokens_of(logits, [whole]) == tokens_of(logits, [last])


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"top_p": 0.0},
        {"top_k": -1},
        {"min_p": 1.1},
        {"repetition_penalty": 0.0},
        {"presence_penalty": float("inf")},
        {"logprobs": -1},
    ],
)
def test_parameters_out_of_range_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(values))):
        Sampling(**values)
