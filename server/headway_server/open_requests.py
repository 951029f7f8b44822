# SPDX-License-Identifier: Apache-2.0
"""The book of requests that are not over: owed by the engine, or not yet read by their client.

Lives on the event loop. A request stays owed until the engine has said its last word on it, also
when its client has long gone: its place is taken until then.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from headway_server.admission import retry_after_seconds
from headway_server.engine.messages import TokenOutput
from headway_server.generation import Generation
from headway_server.problem import Problem

RECENT_FINISHES = 32


class OpenRequests:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._owed: dict[str, Generation] = {}
        self._unread: set[Generation] = set()
        self._finish_times: deque[float] = deque(maxlen=RECENT_FINISHES)
        self._none_left = asyncio.Event()
        self._none_left.set()

    @property
    def owed(self) -> int:
        return len(self._owed)

    def retry_after(self) -> int:
        """Whole seconds after which a refused client may find a place."""
        return retry_after_seconds(tuple(self._finish_times))

    def add(self, generation: Generation) -> None:
        self._owed[generation.request_id] = generation
        self._unread.add(generation)
        self._none_left.clear()

    def deliver(self, outputs: list[TokenOutput]) -> None:
        """One step's outputs to their requests."""
        now = self._clock()
        for output in outputs:
            generation = self._owed.get(output.request_id)
            if generation is None:
                continue
            generation.deliver(now, output)
            if output.finish is not None:
                del self._owed[output.request_id]
                self._finish_times.append(now)
        self._note_if_none_left()

    def discard(self, generation: Generation) -> None:
        """Its client has read all of it, or has gone."""
        self._unread.discard(generation)
        self._note_if_none_left()

    async def finished(self) -> None:
        """Until no request is open."""
        await self._none_left.wait()

    def break_off(self, reason: Callable[[], Problem]) -> int:
        """Ends all that are open, and returns how many those were."""
        for generation in self._unread:
            generation.break_off(reason())
        return len(self._unread)

    def _note_if_none_left(self) -> None:
        if not (self._owed or self._unread):
            self._none_left.set()
