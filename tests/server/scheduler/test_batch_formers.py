# SPDX-License-Identifier: Apache-2.0
"""What the scheduler owes whoever forms batches, shown with a former of pairs."""

from typing import Any

import pytest

from headway_server.scheduler import Blocked, Formation, Request, Settings

PAIRS = Formation(policy="Static", max_batch_size=2)


class Pairs:
    """Two at a time, the next two when those are done; one alone at second 50."""

    def __init__(self) -> None:
        self.held: list[Request] = []

    def hold(self, request: Request, now: float) -> None:
        self.held.append(request)

    def forget(self, request_id: str) -> None:
        self.held = [request for request in self.held if request.request_id != request_id]

    def release(self, now: float, in_batch: int) -> list[Request]:
        if in_batch or (len(self.held) < 2 and now < 50):
            return []
        batch, self.held = self.held[:2], self.held[2:]
        return batch

    def due(self) -> float | None:
        return 50.0 if self.held else None


@pytest.fixture
def driver(bench: Any, policy: Any) -> Any:
    """With a policy whose gate would hold back everybody but the first."""
    shut = policy(waiting_served_ratio_percent=1000, max_waiting_tokens=1000)
    return bench(
        shut,
        formation=PAIRS,
        former_for=lambda formation: Pairs() if formation.policy == "Static" else None,
    )


def test_a_batch_runs_to_its_end_before_the_next_one_starts(driver: Any) -> None:
    requests = [driver.add(prompt=2, output=output) for output in (2, 5, 1, 3)]
    plans = driver.run(8)
    assert plans[0].admitted == tuple(requests[:2])
    assert [bool(plan.admitted) for plan in plans] == [True] + [False] * 4 + [True] + [False] * 2
    assert plans[5].admitted == tuple(requests[2:])


def test_who_is_held_waits_and_the_scheduler_says_until_when(driver: Any) -> None:
    driver.add(prompt=2, output=2)
    assert not driver.step()
    assert driver.scheduler.due() == 50.0
    assert len(driver.scheduler.workloads["chat"].waiting) == 1
    driver.now = 50.0
    assert driver.step().admitted


def test_who_is_held_can_leave(driver: Any) -> None:
    first = driver.add(prompt=2, output=2)
    driver.step()
    driver.scheduler.remove(first)
    second, third = (driver.add(prompt=2, output=2) for _ in range(2))
    assert driver.step().admitted == (second, third)


def test_another_policy_is_taken_up_when_the_batch_is_empty(driver: Any, policy: Any) -> None:
    for _ in range(3):
        driver.add(prompt=2, output=4)
    driver.run(2)
    driver.scheduler.apply(Settings((policy(),)))
    more = driver.add(prompt=2, output=4)
    assert [plan.admitted for plan in driver.run(2)] == [(), ()]
    assert more in driver.step().admitted
    assert len(driver.running()) == 2


def test_a_former_takes_over_from_continuous_batching_with_all_who_wait(
    bench: Any, policy: Any
) -> None:
    driver = bench(
        policy(),
        former_for=lambda formation: Pairs() if formation.policy == "Static" else None,
    )
    driver.add(prompt=2, output=5)
    driver.step()
    driver.scheduler.apply(Settings((policy(),), formation=PAIRS))
    waiting = [driver.add(prompt=2, output=5) for _ in range(3)]
    plans = driver.run(4)
    assert all(plan.blocked.get("chat") in (None, Blocked.GATE) for plan in plans)
    assert not any(plan.admitted for plan in plans)
    assert driver.step().admitted == tuple(waiting[:2])
