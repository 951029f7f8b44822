# SPDX-License-Identifier: Apache-2.0
"""A queue of keys for level-triggered work: what to look at, never what happened.

A key waits at most once however often it is added, is never handled twice at the same time, and
is handled again if it was added while being handled. A failing key comes back after an
exponential backoff with full jitter of its own, so that it neither spins nor delays others.
"""

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS = 0.05
LONGEST_BACKOFF_SECONDS = 300.0

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Done:
    """The key's past failures are forgotten; `after` is when to look again, in seconds."""

    after: float | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """Look again after the key's backoff, but not before `at_least` seconds."""

    at_least: float = 0.0


Outcome = Done | Failed


class WorkQueue(Generic[K]):
    """`uniform(low, high)` draws the jitter."""

    def __init__(self, *, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._uniform = uniform
        self._ready: deque[K] = deque()
        self._waiting: set[K] = set()
        self._added = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._handled_since: dict[K, float] = {}
        self._again: set[K] = set()
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}

    def __len__(self) -> int:
        """Keys that wait or are being handled; delayed ones do not count."""
        return len(self._ready) + len(self._handled_since)

    def add(self, key: K) -> None:
        if timer := self._timers.pop(key, None):
            timer.cancel()
        if key in self._handled_since:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.append(key)
            self._idle.clear()
            self._added.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Add the key after a delay, unless it is to be handled before that anyway."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if key in self._waiting or (timer and timer.when() <= loop.time() + seconds):
            return
        if timer:
            timer.cancel()
        self._timers[key] = loop.call_later(seconds, self.add, key)

    async def run(self, handle: Callable[[K], Awaitable[Outcome]], *, workers: int) -> None:
        """Handle keys until cancelled; what is being handled then is cancelled too."""
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._work(handle))

    async def drain(self, seconds: float) -> None:
        """Wait until nothing waits or is handled, but no longer than that."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()

    def longest_handling(self) -> float:
        """Seconds that the key handled for longest has been handled so far."""
        now = asyncio.get_running_loop().time()
        return max((now - since for since in self._handled_since.values()), default=0.0)

    def forget_delayed(self) -> None:
        """Drop what was to be added later; only for shutting down."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    async def _work(self, handle: Callable[[K], Awaitable[Outcome]]) -> None:
        while True:
            key = await self._next()
            try:
                outcome = await handle(key)
            except Exception:
                logger.exception("handling %s failed", key)
                outcome = Failed()
            finally:
                del self._handled_since[key]
            self._settle(key, outcome)

    async def _next(self) -> K:
        while not self._ready:
            self._added.clear()
            await self._added.wait()
        key = self._ready.popleft()
        self._waiting.discard(key)
        if timer := self._timers.pop(key, None):
            timer.cancel()
        self._handled_since[key] = asyncio.get_running_loop().time()
        return key

    def _settle(self, key: K, outcome: Outcome) -> None:
        if isinstance(outcome, Done):
            self._failures.pop(key, None)
            delay = outcome.after
        else:
            delay = max(outcome.at_least, self._backoff(key))
        if key in self._again:
            self._again.discard(key)
            self.add(key)
        elif delay is not None:
            self.add_after(key, delay)
        if not len(self):
            self._idle.set()

    def _backoff(self, key: K) -> float:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        ceiling = min(FIRST_BACKOFF_SECONDS * 2.0**failures, LONGEST_BACKOFF_SECONDS)
        return self._uniform(0.0, ceiling)
