# SPDX-License-Identifier: Apache-2.0
"""The queue's promises, under a clock that jumps."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest

from headway_operator.workqueue import (
    FIRST_BACKOFF_SECONDS,
    LONGEST_BACKOFF_SECONDS,
    Done,
    Failed,
    Outcome,
    WorkQueue,
)
from tests.operator.faketime import run

Handle = Callable[[str], Awaitable[Outcome]]


def ceiling(low: float, high: float) -> float:
    return high


class Log:
    """Handles keys for one second each and keeps what happened when."""

    def __init__(self, outcome: Outcome | Exception | None = None) -> None:
        self.began: list[tuple[float, str]] = []
        self.at_once = 0
        self.most_at_once = 0
        self.outcome = outcome or Done()

    async def handle(self, key: str) -> Outcome:
        self.began.append((now(), key))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(1)
        finally:
            self.at_once -= 1
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def now() -> float:
    return round(asyncio.get_running_loop().time(), 6)


async def watch(
    queue: WorkQueue[str], log: Log, seconds: float, workers: int = 4
) -> list[tuple[float, str]]:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.run(log.handle, workers=workers), seconds)
    return log.began


def test_a_key_waits_once_however_often_it_is_added() -> None:
    async def scenario() -> list[tuple[float, str]]:
        queue: WorkQueue[str] = WorkQueue()
        for key in ("a", "b", "a", "a", "b"):
            queue.add(key)
        return await watch(queue, Log(), 10)

    assert run(scenario()) == [(0.0, "a"), (0.0, "b")]


def test_a_key_added_while_handled_is_handled_again_and_never_beside_itself() -> None:
    async def scenario() -> Log:
        queue: WorkQueue[str] = WorkQueue()
        log = Log()
        queue.add("a")
        for moment in (0.2, 0.5, 0.9):
            asyncio.get_running_loop().call_later(moment, queue.add, "a")
        await watch(queue, log, 10)
        return log

    log = run(scenario())
    assert log.began == [(0.0, "a"), (1.0, "a")]
    assert log.most_at_once == 1


def test_no_more_keys_are_handled_at_once_than_there_are_workers() -> None:
    async def scenario() -> Log:
        queue: WorkQueue[str] = WorkQueue()
        log = Log()
        for key in "abcdefg":
            queue.add(key)
        await watch(queue, log, 10, workers=3)
        return log

    log = run(scenario())
    assert log.most_at_once == 3
    assert [moment for moment, _ in log.began] == [0, 0, 0, 1, 1, 1, 2]


def test_a_failing_key_comes_back_ever_later_up_to_a_limit() -> None:
    async def scenario() -> list[float]:
        queue: WorkQueue[str] = WorkQueue(uniform=ceiling)
        queue.add("a")
        began = await watch(queue, Log(Failed()), 4000)
        moments = [moment for moment, _ in began]
        return [after - before - 1 for before, after in itertools.pairwise(moments)]

    gaps = run(scenario())
    doubled = [FIRST_BACKOFF_SECONDS * 2**turn for turn in range(13)]
    assert gaps[:13] == pytest.approx(doubled, abs=1e-3)
    assert set(map(round, gaps[13:])) == {LONGEST_BACKOFF_SECONDS}


def test_an_error_in_the_handler_counts_as_a_failure_and_ends_nothing() -> None:
    async def scenario() -> list[tuple[float, str]]:
        queue: WorkQueue[str] = WorkQueue(uniform=ceiling)
        queue.add("a")
        return await watch(queue, Log(RuntimeError("broken")), 2.5)

    assert run(scenario()) == [(0.0, "a"), (1.05, "a"), (2.15, "a")]


def test_a_wait_the_server_asked_for_is_kept() -> None:
    async def scenario() -> list[tuple[float, str]]:
        queue: WorkQueue[str] = WorkQueue(uniform=ceiling)
        queue.add("a")
        return await watch(queue, Log(Failed(at_least=7)), 10)

    assert run(scenario()) == [(0.0, "a"), (8.0, "a")]


def test_success_forgets_past_failures() -> None:
    async def scenario() -> list[float]:
        queue: WorkQueue[str] = WorkQueue(uniform=ceiling)
        outcomes: list[Outcome] = [Failed(), Failed(), Failed(), Done(after=5), Failed(), Done()]
        moments: list[float] = []

        async def handle(key: str) -> Outcome:
            moments.append(now())
            return outcomes[len(moments) - 1]

        queue.add("a")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.run(handle, workers=1), 20)
        return [after - before for before, after in itertools.pairwise(moments)]

    assert run(scenario()) == pytest.approx([0.05, 0.1, 0.2, 5, 0.05], abs=1e-3)


def test_full_jitter_draws_from_zero() -> None:
    drawn: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        drawn.append((low, high))
        return low

    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue(uniform=uniform)
        queue.add("a")
        await watch(queue, Log(Failed()), 2.5)

    run(scenario())
    assert drawn == [(0.0, 0.05), (0.0, 0.1)]


def test_done_says_when_to_look_again() -> None:
    async def scenario() -> list[tuple[float, str]]:
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        return await watch(queue, Log(Done(after=2)), 8)

    assert run(scenario()) == [(0.0, "a"), (3.0, "a"), (6.0, "a")]


def test_of_several_delays_the_earliest_counts() -> None:
    async def scenario() -> list[tuple[float, str]]:
        queue: WorkQueue[str] = WorkQueue()
        for seconds in (5, 3, 9):
            queue.add_after("a", seconds)
        return await watch(queue, Log(), 20)

    assert run(scenario()) == [(3.0, "a")]


def test_what_is_handled_now_need_not_be_handled_later() -> None:
    async def scenario() -> list[tuple[float, str]]:
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("a", 5)
        queue.add("a")
        queue.add_after("a", 6)
        return await watch(queue, Log(), 20)

    assert run(scenario()) == [(0.0, "a")]


def test_a_key_that_hangs_shows() -> None:
    async def scenario() -> tuple[float, int]:
        queue: WorkQueue[str] = WorkQueue()

        async def hang(key: str) -> Outcome:
            await asyncio.sleep(1000)
            return Done()

        queue.add("a")
        task = asyncio.create_task(queue.run(hang, workers=1))
        await asyncio.sleep(400)
        seen = queue.longest_handling(), len(queue)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return seen

    assert run(scenario()) == (400.0, 1)


def test_draining_waits_for_what_is_handled_and_no_longer_than_it_may() -> None:
    async def scenario() -> list[float]:
        queue: WorkQueue[str] = WorkQueue()
        task = asyncio.create_task(queue.run(Log().handle, workers=1))
        ends = []
        for keys, patience in ((2, 10), (9, 3)):
            began = now()
            for key in range(keys):
                queue.add(str(key))
            queue.add_after("later", 100)
            queue.forget_delayed()
            await queue.drain(patience)
            ends.append(now() - began)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return ends

    assert run(scenario()) == [2.0, 3.0]
