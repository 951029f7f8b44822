# SPDX-License-Identifier: Apache-2.0
"""Where the policies that form batches plug in: a stage before the queue.

A request that is held waits like any other, but cannot be admitted. Once released it is admitted
in the usual order, within the usual budgets. Continuous batching holds nobody and has no former.
"""

from collections.abc import Callable
from typing import Protocol

from headway_server.scheduler.request import Request
from headway_server.scheduler.settings import Formation


class BatchFormer(Protocol):
    """Holds waiting requests back until their batch starts."""

    def hold(self, request: Request, now: float) -> None: ...

    def forget(self, request_id: str) -> None:
        """A request has left; if it was held, it is no more. Unknown ids are ignored."""
        ...

    def release(self, now: float, in_batch: int) -> list[Request]:
        """Those whose batch starts now; they are no longer held. Called once a step.

        `in_batch`: requests of earlier batches that are running, or released and not yet admitted.
        """
        ...

    def due(self) -> float | None:
        """When `release` would give some even though nothing arrives and nothing ends."""
        ...


FormerFor = Callable[[Formation], BatchFormer | None]
