# SPDX-License-Identifier: Apache-2.0
"""Dynamic batching: a batch forms when the engine is free, or when waiting has lasted too long."""

from headway_server.scheduler.formation.held import Held
from headway_server.scheduler.request import Request


class Dynamic:
    """Once the oldest request has waited `delay` seconds, as many join what runs as there are
    places free by then. Never do more than `size` requests run together."""

    def __init__(self, size: int, delay: float) -> None:
        self._size = size
        self._delay = delay
        self._held = Held()

    def hold(self, request: Request, now: float) -> None:
        self._held.hold(request)

    def forget(self, request_id: str) -> None:
        self._held.forget(request_id)

    def release(self, now: float, in_batch: int) -> list[Request]:
        oldest = self._held.oldest()
        if oldest is None or (in_batch and now - oldest.arrival < self._delay):
            return []
        return self._held.take(self._size - in_batch)

    def due(self) -> float | None:
        """While a batch runs there are steps, and a free engine takes what waits."""
        return None
