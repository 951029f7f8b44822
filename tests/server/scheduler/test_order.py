# SPDX-License-Identifier: Apache-2.0
"""The order between workloads: priority, then fair shares by weight, and nobody starves."""

from collections import Counter
from typing import Any

from headway_server.scheduler import Blocked


def workload_of(request_id: str) -> str:
    return request_id.split("-")[0]


def test_the_higher_priority_is_let_in_first(bench: Any, policy: Any) -> None:
    driver = bench(policy("low", priority=-5), policy("high", priority=5), kv_blocks=2)
    driver.add(prompt=5, output=5, workload="low")
    driver.add(prompt=5, output=5, workload="low")
    high = [driver.add(prompt=5, output=5, workload="high") for _ in range(2)]
    assert driver.step().admitted == tuple(high)


def test_blocks_that_come_free_are_kept_for_the_higher_priority(bench: Any, policy: Any) -> None:
    driver = bench(policy("low"), policy("high", priority=5), kv_blocks=3)
    driver.add(prompt=5, output=5, workload="low")
    driver.add(prompt=5, output=9, workload="low")
    driver.step()
    high = driver.add(prompt=10, output=10, workload="high")
    driver.add(prompt=1, output=1, workload="low")
    plans = driver.run(8)
    assert not any(plan.admitted for plan in plans)
    assert plans[-1].blocked == {"high": Blocked.KV, "low": Blocked.KV}
    assert driver.step().admitted[0] == high


def test_a_workload_at_its_own_budget_holds_nobody_back(bench: Any, policy: Any) -> None:
    driver = bench(policy("high", priority=5, max_batch_total_tokens=10), policy("low"))
    driver.add(prompt=5, output=5, workload="high")
    driver.add(prompt=5, output=5, workload="high")
    low = driver.add(prompt=5, output=5, workload="low")
    assert low in driver.step().admitted


def test_equal_priorities_share_by_weight(bench: Any, policy: Any) -> None:
    driver = bench(policy("a", weight=3), policy("b", weight=1), kv_blocks=4)
    for _ in range(200):
        driver.add(prompt=5, output=5, workload="a")
        driver.add(prompt=5, output=5, workload="b")
    admitted = Counter(workload_of(r) for plan in driver.run(200) for r in plan.admitted)
    assert admitted == {"a": 120, "b": 40}


def test_a_workload_that_comes_back_does_not_collect_for_its_absence(
    bench: Any, policy: Any
) -> None:
    driver = bench(policy("a"), policy("b"), kv_blocks=4)
    for _ in range(200):
        driver.add(prompt=5, output=5, workload="a")
    driver.run(100)
    for _ in range(20):
        driver.add(prompt=5, output=5, workload="b")
    admitted = Counter(workload_of(r) for plan in driver.run(25) for r in plan.admitted)
    assert admitted == {"a": 10, "b": 10}


def test_a_flood_of_a_higher_priority_does_not_starve_a_lower(bench: Any, policy: Any) -> None:
    """The low request needs the whole cache, so it also needs the blocks kept for it."""
    driver = bench(policy("low"), policy("high", priority=1000), kv_blocks=4, starvation_seconds=30)
    low = driver.add(prompt=20, output=20, workload="low")
    admitted_at = None
    while admitted_at is None and driver.now < 100:
        driver.add(prompt=5, output=5, workload="high")
        if low in driver.step().admitted:
            admitted_at = driver.now
    assert admitted_at is not None
    assert 30 <= admitted_at <= 40


def test_a_long_prompt_of_a_lower_priority_gets_on_under_a_flood(bench: Any, policy: Any) -> None:
    driver = bench(
        policy("low", max_batch_total_tokens=5000),
        policy("high", priority=1000),
        step_tokens=20,
        starvation_seconds=3,
    )
    low = driver.add(prompt=100, output=1, workload="low")
    while driver.running("low") or driver.now < 1:
        driver.add(prompt=40, output=1, workload="high")
        driver.step()
        assert driver.now < 60, "the low prompt does not get on"
    assert low not in driver.running("low")


def test_decodes_leave_a_long_prompt_of_a_lower_priority_a_token_a_step(
    bench: Any, policy: Any
) -> None:
    driver = bench(policy("low"), policy("high", priority=5), step_tokens=2)
    low = driver.add(prompt=10, output=1, workload="low")
    driver.step()
    for _ in range(2):
        driver.add(prompt=1, output=50, workload="high")
    driver.run(9)
    assert low not in driver.running("low")


def test_the_higher_priority_still_has_most_of_the_machine_under_a_flood(
    bench: Any, policy: Any
) -> None:
    driver = bench(policy("low"), policy("high", priority=1), kv_blocks=4, starvation_seconds=10)
    for _ in range(300):
        driver.add(prompt=5, output=5, workload="low")
        driver.add(prompt=5, output=5, workload="high")
    admitted = Counter(workload_of(r) for plan in driver.run(100) for r in plan.admitted)
    assert admitted["low"] >= 100 / 20
    assert admitted["high"] >= 6 * admitted["low"]
