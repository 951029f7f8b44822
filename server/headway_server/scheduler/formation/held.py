# SPDX-License-Identifier: Apache-2.0
"""The requests that wait for their batch, the one that came first at the front."""

import heapq
from itertools import count

from headway_server.scheduler.request import Request

SPARE_ENTRIES = 64


class Held:
    """A heap by arrival. Entries of requests that were forgotten stay until they come up or
    outnumber the others."""

    def __init__(self) -> None:
        self._requests: dict[str, Request] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._places = count()

    def __len__(self) -> int:
        return len(self._requests)

    def hold(self, request: Request) -> None:
        self._requests[request.request_id] = request
        heapq.heappush(self._heap, (request.arrival, next(self._places), request.request_id))

    def forget(self, request_id: str) -> None:
        self._requests.pop(request_id, None)
        if len(self._heap) > 2 * len(self._requests) + SPARE_ENTRIES:
            self._heap = [entry for entry in self._heap if entry[-1] in self._requests]
            heapq.heapify(self._heap)

    def oldest(self) -> Request | None:
        while self._heap and self._heap[0][-1] not in self._requests:
            heapq.heappop(self._heap)
        return self._requests[self._heap[0][-1]] if self._heap else None

    def take(self, requests: int) -> list[Request]:
        """That many of the oldest, or all; they are held no more."""
        taken: list[Request] = []
        while len(taken) < requests and (request := self.oldest()):
            del self._requests[request.request_id]
            taken.append(request)
        return taken

    def by_arrival(self) -> list[Request]:
        return [self._requests[entry[-1]] for entry in sorted(self._heap) if self._has(entry)]

    def _has(self, entry: tuple[float, int, str]) -> bool:
        return entry[-1] in self._requests
