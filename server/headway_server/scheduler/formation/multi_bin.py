# SPDX-License-Identifier: Apache-2.0
"""Multi-bin batching (arXiv 2412.04504): requests of like expected output share a batch, so that
short answers do not wait for the end of long ones. Batches run to their end, one at a time."""

from collections import deque

from headway_server.scheduler.bins import bin_of, bounds_for
from headway_server.scheduler.formation.held import Held
from headway_server.scheduler.request import Request

WINDOW = 512


class MultiBin:
    """A bin's batch is due when its last place is taken, or `delay` seconds after its oldest
    request came, whichever is first; the free engine takes the batch that was due first.

    With full bins that is one queue of batches, first come first served. A bin that never fills is
    due all the same, and what was due later queues behind it: nobody starves. The bins are drawn
    anew for each batch, of equal mass over who waits and the last `WINDOW` who were released.
    """

    def __init__(self, size: int, delay: float, bins: int) -> None:
        self._size = size
        self._delay = delay
        self._bins = bins
        self._held = Held()
        self._recent: deque[int] = deque(maxlen=WINDOW)
        self._due: float | None = None

    def hold(self, request: Request, now: float) -> None:
        self._held.hold(request)

    def forget(self, request_id: str) -> None:
        self._held.forget(request_id)

    def release(self, now: float, in_batch: int) -> list[Request]:
        self._due = None
        if in_batch or not self._held:
            return []
        batches = [self._batch(requests) for requests in self._filled_bins()]
        due, batch = min(batches, key=lambda due_batch: due_batch[0])
        if due > now:
            self._due = due
            return []
        for request in batch:
            self._held.forget(request.request_id)
            self._recent.append(request.expected_output)
        return batch

    def due(self) -> float | None:
        """As of the last `release`."""
        return self._due

    def _filled_bins(self) -> list[list[Request]]:
        """Those with a request in them, the oldest first in each."""
        held = self._held.by_arrival()
        lengths = [*self._recent, *(request.expected_output for request in held)]
        longest = max(*lengths, *(request.max_new_tokens for request in held))
        bounds = bounds_for(lengths, longest, self._bins)
        bins: list[list[Request]] = [[] for _ in range(self._bins)]
        for request in held:
            bins[bin_of(bounds, request.expected_output)].append(request)
        return [requests for requests in bins if requests]

    def _batch(self, requests: list[Request]) -> tuple[float, list[Request]]:
        """When a bin's next batch is due, and the batch."""
        batch = requests[: self._size]
        overdue = batch[0].arrival + self._delay
        return min(batch[-1].arrival, overdue) if len(batch) == self._size else overdue, batch
