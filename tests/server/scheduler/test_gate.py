# SPDX-License-Identifier: Apache-2.0
"""The two gate knobs mean what they mean in TGI."""

from typing import Any

import pytest

from headway_server.scheduler import Blocked, Knobs
from headway_server.scheduler.gate import AdmissionGate


@pytest.mark.parametrize(
    ("percent", "running", "waiting", "is_open"),
    [
        (0, 100, 1, True),
        (30, 0, 1, True),
        (30, 3, 1, True),  # floor(0.9) = 0
        (30, 4, 1, True),  # floor(1.2) = 1
        (30, 6, 1, True),  # floor(1.8) = 1
        (30, 7, 1, False),  # floor(2.1) = 2
        (30, 7, 2, True),
        (100, 5, 4, False),
        (100, 5, 5, True),
        (120, 10, 11, False),
        (120, 10, 12, True),
        (29, 100, 28, False),
        (29, 100, 29, True),
    ],
)
def test_ratio(percent: int, running: int, waiting: int, is_open: bool) -> None:
    gate = AdmissionGate()
    knobs = Knobs(1000, 100, waiting_served_ratio_percent=percent, max_waiting_tokens=20)
    assert gate.is_open(knobs, waiting, running) == is_open


@pytest.mark.parametrize(
    ("max_waiting_tokens", "steps_since_admission", "is_open"),
    [(0, 0, True), (1, 0, False), (1, 1, True), (20, 19, False), (20, 20, True), (20, 21, True)],
)
def test_max_waiting_tokens(
    max_waiting_tokens: int, steps_since_admission: int, is_open: bool
) -> None:
    gate = AdmissionGate()
    knobs = Knobs(
        1000, 100, waiting_served_ratio_percent=1000, max_waiting_tokens=max_waiting_tokens
    )
    gate.admitted()
    for _ in range(steps_since_admission):
        gate.served()
    assert gate.is_open(knobs, waiting=1, running=10) == is_open


def test_the_ratio_holds_a_request_back_until_enough_are_waiting(bench: Any, policy: Any) -> None:
    driver = bench(policy(waiting_served_ratio_percent=50, max_waiting_tokens=1000))
    for _ in range(4):
        driver.add(prompt=1, output=100)
    driver.step()
    first = driver.add(prompt=1, output=1)
    assert all(plan.blocked == {"chat": Blocked.GATE} for plan in driver.run(3))
    second = driver.add(prompt=1, output=1)
    assert driver.step().admitted == (first, second)


def test_max_waiting_tokens_forces_a_request_in_and_counts_from_the_last_admission(
    bench: Any, policy: Any
) -> None:
    driver = bench(policy(waiting_served_ratio_percent=1000, max_waiting_tokens=5))
    driver.add(prompt=1, output=100)
    driver.step()
    admitted_after = []
    for _ in range(2):
        driver.add(prompt=1, output=100)
        waited = 1
        while not driver.step().admitted:
            waited += 1
        admitted_after.append(waited)
    assert admitted_after == [5, 5]


def test_the_gate_holds_while_a_long_prompt_is_prefilled_in_chunks(bench: Any, policy: Any) -> None:
    knobs = {"waiting_served_ratio_percent": 100, "max_waiting_tokens": 1000}
    driver = bench(policy(max_batch_prefill_tokens=10, **knobs))
    driver.add(prompt=1, output=100)
    driver.add(prompt=40, output=100)
    driver.step()
    driver.add(prompt=1, output=1)
    plans = driver.run(5)
    assert [bool(plan.chunks) for plan in plans] == [True] * 4 + [False]
    assert all(plan.blocked == {"chat": Blocked.GATE} for plan in plans)


def test_each_workload_has_its_own_gate(bench: Any, policy: Any) -> None:
    driver = bench(
        policy(waiting_served_ratio_percent=1000, max_waiting_tokens=1000),
        policy("batch", waiting_served_ratio_percent=0),
    )
    driver.add(prompt=1, output=100)
    driver.add(prompt=1, output=100, workload="batch")
    driver.step()
    driver.add(prompt=1, output=1)
    let_in = driver.add(prompt=1, output=1, workload="batch")
    assert driver.step().admitted == (let_in,)
