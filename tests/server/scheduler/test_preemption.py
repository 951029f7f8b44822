# SPDX-License-Identifier: Apache-2.0
"""Reservations smaller than the answer: they grow, and when there is no room somebody waits."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from headway_server.scheduler import (
    Blocked,
    Expectation,
    Formation,
    Refusal,
    Refused,
    Request,
    Settings,
)

EXPECTED = Formation(output_reservation="Expected")


@dataclass
class Guess:
    """Expects every answer to be that long, or one token longer than it is."""

    tokens: int

    def expect(self, request: Request, generated: int = 0) -> Expectation:
        tokens = min(request.max_new_tokens, max(self.tokens, generated + 1))
        return Expectation(tokens, tokens)

    def learn(self, request: Request, output_tokens: int) -> None:
        self.tokens = output_tokens


@pytest.fixture
def guessing(bench: Any) -> Any:
    def build(*policies: Any, guess: int = 1, **values: Any) -> Any:
        driver = bench(*policies, formation=EXPECTED, predictor=Guess(guess), **values)
        driver.finished = []
        return driver

    return build


def run_counting(driver: Any, limit: int = 1000) -> Counter[str]:
    """To the end, each step doing something; how often each request was preempted."""
    preempted: Counter[str] = Counter()
    while not driver.scheduler.is_empty:
        plan = driver.step()
        assert plan
        preempted.update(plan.preempted)
        limit -= 1
        assert limit > 0
    return preempted


def test_eight_growing_answers_in_twelve_blocks_all_finish_and_lose_their_place_at_most_twice(
    guessing: Any,
) -> None:
    driver = guessing(kv_blocks=12)
    for _ in range(8):
        driver.add(prompt=10, output=50)
    preempted = run_counting(driver)
    assert preempted
    assert max(preempted.values()) <= 2
    assert driver.scheduler.free_blocks == 12


def test_a_reservation_grows_a_block_at_a_time_and_is_given_back_at_the_end(guessing: Any) -> None:
    driver = guessing()
    driver.add(prompt=10, output=35)
    held = []
    while not driver.scheduler.is_empty:
        driver.step()
        held.append(1000 - driver.scheduler.free_blocks)
    assert held[0] == 2
    assert held == [*sorted(held[:-1]), 0]
    assert max(held) == 5


def test_full_reservation_is_never_preempted_whatever_is_expected(bench: Any) -> None:
    driver = bench(kv_blocks=12, predictor=Guess(1))
    for _ in range(8):
        driver.add(prompt=10, output=50)
    assert not run_counting(driver)


def test_the_victim_is_of_the_lowest_priority_and_loses_least(guessing: Any, policy: Any) -> None:
    driver = guessing(policy("low", priority=-1), policy("high"), kv_blocks=9)
    advanced = driver.add(prompt=10, output=40, workload="low")
    driver.step()
    late = driver.add(prompt=9, output=40, workload="low")
    high = driver.add(prompt=8, output=80, workload="high")
    victims = [r for plan in driver.run(60) for r in plan.preempted]
    assert victims[0] == late
    assert high not in victims
    assert advanced in victims


def test_who_lost_its_place_computes_its_answer_so_far_again_and_makes_only_the_rest(
    guessing: Any,
) -> None:
    driver = guessing(kv_blocks=4)
    driver.add(prompt=10, output=28)
    second = driver.add(prompt=9, output=25)
    made = 0
    while not (plan := driver.step()).preempted:
        made += second in plan.sampling
    assert plan.preempted == (second,)
    assert second not in driver.running()
    while second not in (plan := driver.step()).admitted:
        assert plan
    chunk = next(chunk for chunk in plan.chunks if chunk.request_id == second)
    assert (chunk.start, chunk.tokens, chunk.last) == (0, 9 + made, True)
    made += 1
    while not driver.scheduler.is_empty:
        made += second in driver.step().sampling
    assert made == 25


def test_a_workload_that_outgrows_its_budget_makes_room_itself(guessing: Any, policy: Any) -> None:
    driver = guessing(policy("tight", max_batch_total_tokens=60), policy("other"))
    for _ in range(3):
        driver.add(prompt=10, output=40, workload="tight")
    other = driver.add(prompt=10, output=60, workload="other")
    while not driver.scheduler.is_empty:
        plan = driver.step()
        assert plan
        assert other not in plan.preempted
        if "tight" in driver.scheduler.workloads:
            assert driver.scheduler.workloads["tight"].reserved_tokens <= 60


def test_nobody_is_let_in_by_a_step_that_had_to_preempt(guessing: Any) -> None:
    driver = guessing(kv_blocks=4)
    for _ in range(2):
        driver.add(prompt=10, output=29)
    for _ in range(5):
        driver.add(prompt=1, output=1)
    preempting = [plan for plan in driver.run(60) if plan.preempted]
    assert preempting
    assert not any(plan.admitted for plan in preempting)


def test_a_lowered_budget_evicts_nobody_and_whoever_lost_its_place_before_still_finishes(
    guessing: Any, policy: Any
) -> None:
    driver = guessing(policy(max_batch_total_tokens=100), kv_blocks=6)
    for _ in range(3):
        driver.add(prompt=10, output=45)
    while not driver.step().preempted:
        pass
    lower = Settings((policy(max_batch_total_tokens=20),), formation=EXPECTED)
    assert driver.scheduler.apply(lower) == []
    run_counting(driver)


def test_a_preempted_request_is_not_refused_for_waiting_too_long(
    guessing: Any, policy: Any
) -> None:
    driver = guessing(policy(queue_timeout_seconds=1.0), kv_blocks=5)
    for _ in range(2):
        driver.add(prompt=10, output=40)
    while not driver.step().preempted:
        pass
    assert driver.scheduler.remove_timed_out(driver.now + 100) == []


def test_a_preempted_request_can_be_cancelled_while_it_waits(guessing: Any) -> None:
    driver = guessing(kv_blocks=5)
    for _ in range(2):
        driver.add(prompt=10, output=40)
    while not (plan := driver.step()).preempted:
        pass
    assert driver.scheduler.remove(plan.preempted[0])
    assert not run_counting(driver)
    assert driver.scheduler.free_blocks == 5


def test_larger_than_the_replica_is_refused_at_once_however_short_it_is_expected(
    guessing: Any,
) -> None:
    with pytest.raises(Refused, match="has 190") as refused:
        guessing(kv_blocks=19).add(prompt=380, output=1)
    assert refused.value.reason == Refusal.TOO_LARGE


def test_the_predictor_learns_from_answers_that_ended_by_themselves(guessing: Any) -> None:
    driver = guessing(guess=9)
    driver.scheduler.remove(driver.add(prompt=10, output=90))
    driver.step()
    assert driver.scheduler.predictor.tokens == 9
    request = driver.add(prompt=10, output=90)
    driver.run(3)
    driver.step(stopped=(request,))
    assert driver.scheduler.predictor.tokens == 4


def test_switching_to_full_reservation_counts_for_those_that_wait(
    guessing: Any, policy: Any
) -> None:
    driver = guessing(policy(max_running=1), kv_blocks=8)
    driver.add(prompt=10, output=60)
    waiting = driver.add(prompt=10, output=60)
    driver.step()
    driver.scheduler.apply(Settings((policy(max_running=9),)))
    plan = driver.step()
    assert waiting not in plan.admitted
    assert plan.blocked == {"chat": Blocked.KV}


def test_nobody_is_preempted_for_blocks_that_the_step_under_way_sets_free(guessing: Any) -> None:
    driver = guessing(kv_blocks=4)
    scheduler = driver.scheduler
    ending = driver.add(prompt=10, output=10)
    growing = driver.add(prompt=11, output=20)
    plans = driver.run(9)
    assert growing in plans[-1].decode
    under_way = scheduler.plan(9.0)
    scheduler.launched(under_way)
    ahead = scheduler.plan(10.0)
    assert (ahead.decode, ahead.preempted) == ((), ())
    assert scheduler.settle(under_way) == [ending]
    assert scheduler.plan(11.0).decode == (growing,)
