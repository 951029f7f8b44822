# SPDX-License-Identifier: Apache-2.0
"""Static batching: a batch runs to the end of its longest answer before the next one starts."""

from headway_server.scheduler.formation.held import Held
from headway_server.scheduler.request import Request


class Static:
    """Batches of `size`, first come first served. A free engine takes fewer if no more wait, so
    that nobody waits for ever; whoever comes later does not join them."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._held = Held()

    def hold(self, request: Request, now: float) -> None:
        self._held.hold(request)

    def forget(self, request_id: str) -> None:
        self._held.forget(request_id)

    def release(self, now: float, in_batch: int) -> list[Request]:
        return [] if in_batch else self._held.take(self._size)

    def due(self) -> float | None:
        return None
