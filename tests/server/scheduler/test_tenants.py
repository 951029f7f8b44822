# SPDX-License-Identifier: Apache-2.0
"""The order within a workload: fair between tenants, by deadline and age within one."""

from collections import Counter
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings

from headway_server.scheduler import Formation, Settings

sizes = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=30, max_size=30)


def cost(prompt: int, output: int) -> int:
    return prompt + 2 * output


@given(a=sizes, b=sizes, running=st.integers(1, 5))
@hypothesis_settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_two_backlogged_tenants_are_never_further_apart_than_one_request(
    a: list[tuple[int, int]], b: list[tuple[int, int]], running: int, bench: Any, policy: Any
) -> None:
    driver = bench(policy(max_running=running))
    asked: dict[str, tuple[str, int]] = {}
    waiting: Counter[str] = Counter()
    for size_a, size_b in zip(a, b, strict=True):
        for tenant, (prompt, output) in (("a", size_a), ("b", size_b)):
            asked[driver.add(prompt, output, tenant=tenant)] = (tenant, cost(prompt, output))
            waiting[tenant] += 1
    served: Counter[str] = Counter()
    largest = max(tokens for _, tokens in asked.values())
    while True:
        for request_id in driver.step().admitted:
            tenant, tokens = asked[request_id]
            served[tenant] += tokens
            waiting[tenant] -= 1
            if not (waiting["a"] and waiting["b"]):
                return
            assert abs(served["a"] - served["b"]) <= largest


def test_a_tenant_with_many_requests_does_not_delay_one_with_few(bench: Any, policy: Any) -> None:
    driver = bench(policy(max_running=1))
    for _ in range(100):
        driver.add(prompt=5, output=2, tenant="flood")
    driver.run(4)
    few = driver.add(prompt=5, output=2, tenant="few")
    admitted = [plan.admitted for plan in driver.run(5)]
    assert (few,) in admitted


def test_an_answer_that_stopped_early_costs_its_tenant_only_what_it_used(
    bench: Any, policy: Any
) -> None:
    driver = bench(policy(max_running=1))
    stopping = driver.add(prompt=5, output=100, tenant="a")
    driver.step(stopped=(stopping,))
    order = {driver.add(prompt=10, output=10, tenant=tenant): tenant for tenant in "bbaa"}
    admitted = [order[r] for plan in driver.run(40) for r in plan.admitted]
    assert Counter(admitted[:2]) == {"a": 1, "b": 1}


def test_a_tenant_that_comes_back_is_owed_nothing_for_its_absence(bench: Any, policy: Any) -> None:
    driver = bench(policy(max_running=1))
    for _ in range(50):
        driver.add(prompt=4, output=1, tenant="busy")
    driver.run(30)
    order = {driver.add(prompt=4, output=1, tenant="back"): "back" for _ in range(10)}
    admitted = [order.get(r, "busy") for plan in driver.run(10) for r in plan.admitted]
    assert Counter(admitted) == {"busy": 5, "back": 5}


def test_a_tenant_that_was_served_more_does_not_become_new_by_pausing(
    bench: Any, policy: Any
) -> None:
    driver = bench(policy(max_running=1))
    greedy = driver.add(prompt=50, output=40, tenant="greedy")
    for _ in range(60):
        driver.add(prompt=2, output=1, tenant="modest")
    while driver.running() != {greedy}:
        driver.step()
    driver.run(40)
    order = {driver.add(prompt=2, output=1, tenant="greedy"): "greedy" for _ in range(5)}
    admitted = [order.get(r, "modest") for plan in driver.run(20) for r in plan.admitted]
    assert admitted == ["modest"] * 20


def test_equals_are_served_in_the_order_in_which_they_came(bench: Any, policy: Any) -> None:
    driver = bench(policy(max_running=1))
    requests = [driver.add(prompt=2, output=1, arrival=0.0) for _ in range(20)]
    admitted = [r for plan in driver.run(20) for r in plan.admitted]
    assert admitted == requests


def test_a_near_deadline_goes_first_and_a_far_one_waits_its_turn(bench: Any, policy: Any) -> None:
    driver = bench(policy(max_running=1))
    plain = driver.add(prompt=2, output=1)
    far = driver.add(prompt=2, output=1, deadline=1000.0)
    near = driver.add(prompt=2, output=1, deadline=5.0)
    assert [r for plan in driver.run(3) for r in plan.admitted] == [near, plain, far]


def test_a_flood_of_near_deadlines_does_not_starve_who_has_none(bench: Any, policy: Any) -> None:
    driver = bench(policy(max_running=1))
    plain = driver.add(prompt=2, output=1)
    admitted: tuple[str, ...] = ()
    while plain not in admitted:
        driver.add(prompt=2, output=1, deadline=driver.now + 3)
        driver.add(prompt=2, output=1, deadline=driver.now + 3)
        admitted = driver.step().admitted
        assert driver.now < 20


def test_length_awareness_puts_short_answers_first_but_lets_long_ones_age(
    bench: Any, policy: Any
) -> None:
    driver = bench(policy(max_running=1), formation=Formation(length_aware=True))
    long = driver.add(prompt=2, output=500)
    short = driver.add(prompt=2, output=1)
    assert driver.step().admitted == (short,)
    driver.now = 6.0
    driver.add(prompt=2, output=1)
    assert driver.step().admitted == (long,)


def test_length_awareness_can_be_switched_while_requests_wait(bench: Any, policy: Any) -> None:
    driver = bench(policy(max_running=1))
    driver.add(prompt=2, output=300)
    short = driver.add(prompt=2, output=1)
    formation = Formation(length_aware=True)
    driver.scheduler.apply(Settings((policy(max_running=1),), formation=formation))
    assert driver.step().admitted == (short,)


def test_a_tenant_at_its_limit_is_admitted_again_when_one_of_its_own_ends(
    bench: Any, policy: Any
) -> None:
    driver = bench(policy(max_running_per_tenant=1))
    driver.add(prompt=1, output=3, tenant="a")
    second = driver.add(prompt=1, output=3, tenant="a")
    admitted = [plan.admitted for plan in driver.run(4)]
    assert admitted[3] == (second,)


def test_a_raised_tenant_limit_holds_for_those_that_wait(bench: Any, policy: Any) -> None:
    driver = bench(policy(max_running_per_tenant=1))
    for _ in range(3):
        driver.add(prompt=1, output=50, tenant="a")
    driver.run(2)
    driver.scheduler.apply(Settings((policy(max_running_per_tenant=3),)))
    assert len(driver.step().admitted) == 2


@pytest.mark.parametrize("first_leaves", [True, False])
def test_a_cancel_in_the_middle_of_the_queue_moves_nobody_else(
    first_leaves: bool, bench: Any, policy: Any
) -> None:
    driver = bench(policy(max_running=1))
    requests = [driver.add(prompt=2, output=1) for _ in range(200)]
    leaving = requests[0:150:2] if first_leaves else requests[1:150:2]
    for request in leaving:
        driver.scheduler.remove(request)
    staying = [request for request in requests if request not in leaving]
    admitted = [r for plan in driver.run(len(staying)) for r in plan.admitted]
    assert admitted == staying
