# SPDX-License-Identifier: Apache-2.0
"""Every rule, alone and together, against a reference that sorts and counts in the plainest way."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from headway_server.engine.messages import Sampling
from headway_server.runner.draw import draw_line, draw_together, uniform_of
from headway_server.runner.logit_rules import TALLIES_KEPT, Tallies
from headway_server.runner.protocol import Row
from headway_server.runner.sampling import Sampler, sample

VOCABULARY = 300
SCRATCH = np.empty(VOCABULARY, np.float32)


class Allow:
    """A grammar that allows the same tokens for ever."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = tokens

    def fill(self, mask: NDArray[np.int32]) -> None:
        words = mask.view(np.uint32)
        words[:] = 0
        for token in self.tokens:
            words[token // 32] |= np.uint32(1 << token % 32)

    def accept(self, token: int) -> bool:
        return token in self.tokens


def scores(line: NDArray[np.float64], row: Row) -> NDArray[np.float64]:
    """The line after all rules."""
    line, sampling = line.copy(), row.sampling
    for token, bias in sampling.logit_bias:
        line[token] += bias
    prompt, answer = row.history or ((), ())
    for token in {*prompt, *answer}:
        if line[token] > 0:
            line[token] /= sampling.repetition_penalty
        else:
            line[token] *= sampling.repetition_penalty
    for token in set(answer):
        line[token] -= sampling.presence_penalty
        line[token] -= sampling.frequency_penalty * list(answer).count(token)
    allowed = set(range(len(line)))
    if isinstance(row.matcher, Allow):
        allowed &= set(row.matcher.tokens)
    allowed = allowed - row.banned or allowed
    line[list(set(range(len(line))) - allowed)] = -np.inf
    return line


def reference(line: NDArray[np.float64], row: Row) -> int:
    line, sampling = scores(line, row), row.sampling
    if sampling.temperature == 0:
        return int(line.argmax())
    order = sorted(range(len(line)), key=lambda token: -line[token])
    weights = np.exp((line[order] - line.max()) / sampling.temperature)
    kept = weights[: sampling.top_k or None]
    before = np.concatenate([[0], kept.cumsum()[:-1]])
    if sampling.top_p < 1:
        kept = kept[before < sampling.top_p * kept.sum()]
    kept = kept[kept >= sampling.min_p * kept[0]]
    place = int((kept.cumsum() <= uniform_of(row) * kept.sum()).sum())
    return order[min(place, len(kept) - 1)]


def references(logits: torch.Tensor, rows: list[Row]) -> list[int]:
    lines = logits.double().numpy()
    return [reference(line, row) for line, row in zip(lines, rows, strict=True)]


def random_row(generator: random.Random, **fixed: Any) -> Row:
    pick = generator.choice
    sampling: dict[str, Any] = {
        "temperature": pick([0.0, 0.3, 1.0, 2.0]),
        "top_k": pick([0, 0, 1, 7, 100, 1000]),
        "top_p": pick([1.0, 1.0, 0.2, 0.9, 0.999]),
        "min_p": pick([0.0, 0.0, 1e-6, 0.05, 0.5]),
        "seed": generator.randrange(2**63),
        "repetition_penalty": pick([1.0, 1.0, 0.8, 1.3]),
        "presence_penalty": pick([0.0, 0.0, -0.5, 1.5]),
        "frequency_penalty": pick([0.0, 0.0, -0.2, 0.7]),
        "logit_bias": pick([(), (), ((3, 5.0), (7, -100.0), (8, 2.5))]),
    }
    tokens = range(VOCABULARY)
    return Row(
        request_id=str(generator.random()),
        token_ids=(1,),
        start=generator.randrange(1000),
        block_table=(0,),
        samples=True,
        sampling=Sampling(**(sampling | fixed)),
        history=(generator.choices(tokens, k=20), generator.choices(tokens, k=12)),
        banned=frozenset(pick([(), (), (4,), tuple(range(0, 300, 2))])),
        matcher=pick([None, None, Allow(generator.sample(tokens, 90)), Allow([4])]),
    )


def random_lines(seed: int, rows: int, spread: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, VOCABULARY, generator=generator) * spread


@pytest.mark.parametrize("spread", [0.1, 2.0, 8.0])
def test_tokens_are_those_of_the_reference(spread: float) -> None:
    generator = random.Random(7)
    rows = [random_row(generator) for _ in range(300)]
    logits = random_lines(1, 300, spread)
    expected = references(logits, rows)
    assert sample(logits, rows).tokens == expected


@pytest.mark.parametrize("spread", [0.1, 2.0, 8.0])
def test_sorting_all_lines_at_once_draws_the_same(spread: float) -> None:
    """What runs on a GPU agrees with what runs on the CPU."""
    generator = random.Random(9)
    rows = [random_row(generator, temperature=generator.choice([0.5, 1.3])) for _ in range(200)]
    logits = random_lines(2, 200, spread)
    one_by_one = [
        draw_line(line.numpy(), row.sampling, uniform_of(row), SCRATCH)
        for line, row in zip(logits, rows, strict=True)
    ]
    assert draw_together(logits, rows).tolist() == one_by_one


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32), st.integers(1, 12), st.data())
def test_company_does_not_change_a_token(seed: int, count: int, data: st.DataObject) -> None:
    generator = random.Random(seed)
    rows = [random_row(generator) for _ in range(count)]
    logits = random_lines(seed % 1000, count, 2.0)
    together = sample(logits, rows).tokens
    order = data.draw(st.permutations(range(count)))
    some = order[: data.draw(st.integers(1, count))]
    assert sample(logits[some], [rows[i] for i in some]).tokens == [together[i] for i in some]


def test_equal_logits_are_told_apart_by_their_id() -> None:
    rows = [random_row(random.Random(n), temperature=1.0, top_k=40) for n in range(50)]
    logits = torch.zeros(50, VOCABULARY)
    expected = references(logits, rows)
    assert sample(logits, rows).tokens == expected
    assert draw_together(logits, rows).tolist() == [
        draw_line(logits[0].numpy(), row.sampling, uniform_of(row), SCRATCH) for row in rows
    ]


def greedy(request_id: str, **values: Any) -> Row:
    fields = {name: values.pop(name) for name in ("history", "samples") if name in values}
    samples = fields.pop("samples", True)
    return Row(request_id, (1,), 5, (0,), samples, Sampling(**values), **fields)


def test_history_is_followed_from_step_to_step() -> None:
    sampler = Sampler(VOCABULARY)
    logits = random_lines(4, 1, 1.0)
    answer: list[int] = []
    for _ in range(40):
        row = greedy("r", history=((5, 6), answer), frequency_penalty=0.8, repetition_penalty=1.2)
        (token,) = sampler.begin([row]).draw(logits).tokens
        assert token == reference(logits[0].double().numpy(), row)
        assert token is not None
        answer.append(token)
    assert len(set(answer)) > 10


def test_what_is_remembered_of_requests_is_bounded() -> None:
    tallies = Tallies()
    for number in range(TALLIES_KEPT + 20):
        tallies.of(greedy(str(number), history=((1,), [2])))
    assert len(tallies._by_request) == TALLIES_KEPT


def test_logprobs_are_the_models_own() -> None:
    logits = random_lines(5, 3, 2.0)
    rows = [
        greedy("silent", samples=False),
        greedy("five", logprobs=5, temperature=1.0, seed=2, logit_bias=((9, 100.0),)),
        greedy("none"),
        greedy("drawn only", logprobs=0),
    ]
    result = Sampler(VOCABULARY).begin(rows).draw(logits)
    assert result.tokens[0] is None
    assert result.tokens[1] == 9
    assert set(result.logprobs) == {1, 3}
    expected = logits.double().log_softmax(dim=-1)
    five = result.logprobs[1]
    assert five.token_id == 9
    assert five.logprob == pytest.approx(expected[0, 9].item(), abs=1e-5)
    assert [token for token, _ in five.top] == expected[0].argsort(descending=True)[:5].tolist()
    assert five.top[0][1] == pytest.approx(expected[0].max().item(), abs=1e-5)
    assert result.logprobs[3].top == ()
    assert result.logprobs[3].logprob == pytest.approx(expected[2].max().item(), abs=1e-5)


def test_a_broken_line_harms_no_other() -> None:
    logits = random_lines(6, 3, 2.0)
    expected = sample(logits[[0, 2]], [greedy("a"), greedy("c", temperature=1.0)]).tokens
    for broken in (float("nan"), float("inf"), -float("inf")):
        logits[1] = broken
        rows = [greedy("a"), greedy("b", temperature=1.0, top_p=0.5), greedy("c", temperature=1.0)]
        tokens = sample(logits, rows).tokens
        assert [tokens[0], tokens[2]] == expected
        assert tokens[1] is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_greedy_is_the_argmax(dtype: torch.dtype) -> None:
    logits = random_lines(8, 40, 1.0).to(dtype)
    assert sample(logits, [greedy(str(n)) for n in range(40)]).tokens == logits.argmax(-1).tolist()


def test_logits_are_left_as_they_are() -> None:
    logits = random_lines(9, 30, 1.0)
    before = logits.clone()
    generator = random.Random(3)
    sample(logits, [random_row(generator, logprobs=2) for _ in range(30)])
    assert torch.equal(logits, before)
