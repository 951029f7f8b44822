# SPDX-License-Identifier: Apache-2.0
"""What is expected of an answer, from those that were given before."""

import random
from typing import Any

import pytest

from headway_server.scheduler import Request
from headway_server.scheduler.history import DecayedHistogram, History
from headway_server.scheduler.length import Expectation, MaxTokens


def asked(workload: str = "chat", tenant: str = "t", group: int = 0, limit: int = 1000) -> Request:
    return Request("r", workload, tenant, 10, limit, arrival=0.0, prompt_group=group)


def taught(lengths: list[int], history: History | None = None, **kind: Any) -> History:
    history = History() if history is None else history
    for tokens in lengths:
        history.learn(asked(**kind), tokens)
    return history


def test_whoever_knows_nothing_expects_all_that_may_come() -> None:
    assert History().expect(asked(limit=300)) == Expectation(300, 300)
    assert taught([5] * 3).expect(asked(limit=300)) == Expectation(300, 300)
    assert MaxTokens().expect(asked(limit=7), generated=3) == Expectation(7, 7)


def test_the_most_specific_kind_that_has_seen_enough_answers() -> None:
    history = taught([400] * 50, tenant="long")
    taught([10] * 50, history, tenant="short")
    taught([100] * 50, history, tenant="short", group=7)
    assert history.expect(asked(tenant="short", group=7)).tokens == pytest.approx(100, abs=1)
    assert history.expect(asked(tenant="short", group=8)).tokens == pytest.approx(55, abs=3)
    assert history.expect(asked(tenant="new")).tokens == pytest.approx(170, rel=0.1)
    assert history.expect(asked(workload="other")) == Expectation(1000, 1000)


def test_what_is_made_already_changes_what_is_expected() -> None:
    history = taught([10, 200] * 50)
    assert history.expect(asked()).tokens == pytest.approx(105, abs=3)
    assert history.expect(asked(), generated=20).tokens == pytest.approx(200, abs=1)


def test_an_answer_longer_than_all_before_may_take_all_it_may() -> None:
    assert taught([10, 20] * 50).expect(asked(), generated=500) == Expectation(1000, 1000)


@pytest.mark.parametrize("generated", [0, 10, 50, 120])
def test_the_conditional_mean_is_that_of_the_answers(generated: int) -> None:
    chance = random.Random(generated)
    lengths = [1 + int(chance.expovariate(1 / 80)) for _ in range(3000)]
    longer = [min(tokens, 400) for tokens in lengths if tokens > generated]
    expectation = taught(lengths, History(half_life=1e6)).expect(asked(limit=400), generated)
    assert expectation.tokens == pytest.approx(sum(longer) / len(longer), rel=0.06)
    within = sum(tokens <= expectation.bound for tokens in longer) / len(longer)
    assert 0.88 <= within <= 0.96


def test_an_expectation_stays_within_the_limit_and_above_what_is_made() -> None:
    history = taught([5, 50, 500] * 50)
    for limit in (1, 2, 17, 60, 499, 2000):
        for generated in range(0, limit, 7):
            expectation = history.expect(asked(limit=limit), generated)
            assert generated < expectation.tokens <= expectation.bound <= limit


def test_answers_longer_than_allowed_count_as_the_limit() -> None:
    assert taught([10, 1000] * 50).expect(asked(limit=100)).tokens == pytest.approx(55, abs=1)


def test_old_answers_fade() -> None:
    history = taught([400] * 2000 + [20] * 1500, History(half_life=100))
    assert history.expect(asked()).tokens == pytest.approx(20, abs=2)


def test_weights_stay_finite_over_many_answers() -> None:
    histogram = DecayedHistogram(half_life=2)
    for _ in range(5000):
        histogram.add(30)
    (span,) = histogram.spans()
    assert span.mean == pytest.approx(30)
    assert span.weight == pytest.approx(1 / (1 - 2**-0.5))


def test_a_flood_of_prompt_groups_neither_grows_the_memory_nor_pushes_the_workload_out() -> None:
    history = taught([30] * 50, History(most_kinds=10))
    for group in range(1000):
        history.learn(asked(tenant=f"tenant-{group}", group=group), 30)
    assert history.kinds == 10
    assert history.expect(asked(tenant="new")).tokens == pytest.approx(30, abs=1)
