# SPDX-License-Identifier: Apache-2.0
"""The batch former in force, if any, and the change from one way of forming batches to another."""

from collections.abc import Mapping

from headway_server.scheduler.batch_former import FormerFor
from headway_server.scheduler.request import Request
from headway_server.scheduler.settings import Formation
from headway_server.scheduler.workload import Workload


class Batches:
    """`changing`: another way was asked for; until the batch is empty nobody is let in."""

    def __init__(
        self, former_for: FormerFor, formation: Formation, workloads: Mapping[str, Workload]
    ) -> None:
        self.changing = False
        self._former_for = former_for
        self._formation = formation
        self._former = former_for(formation)
        self._workloads = workloads

    @property
    def are_formed(self) -> bool:
        """Whether requests wait for a batch, rather than each for itself."""
        return self._former is not None

    def hold(self, request: Request) -> None:
        if self._former:
            self._former.hold(request, request.arrival)

    def forget(self, request_id: str) -> None:
        if self._former:
            self._former.forget(request_id)

    def due(self) -> float | None:
        return self._former.due() if self._former else None

    def adopt(self, formation: Formation) -> None:
        if shape(formation) != shape(self._formation):
            self.changing = True
        self._formation = formation

    def release(self, now: float) -> None:
        """Lets the former say whose batch starts."""
        running = sum(len(workload.running) for workload in self._workloads.values())
        if self.changing and not running:
            self._change(now)
        if self._former and not self.changing:
            released = sum(workload.waiting.released for workload in self._workloads.values())
            for request in self._former.release(now, running + released):
                self._workloads[request.workload].waiting.free(request)

    def _change(self, now: float) -> None:
        self.changing = False
        self._former = self._former_for(self._formation)
        for workload in self._workloads.values():
            if self._former is None:
                workload.waiting.free_all()
                continue
            for request in workload.waiting.hold_fresh():
                self._former.hold(request, now)


def shape(formation: Formation) -> tuple[str | float, ...]:
    """What tells one way to form batches from another."""
    if formation.policy == "Continuous":
        return (formation.policy,)
    size, delay = formation.max_batch_size, formation.max_delay_seconds
    return formation.policy, size, delay, formation.bins
