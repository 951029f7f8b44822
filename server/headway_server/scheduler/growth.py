# SPDX-License-Identifier: Apache-2.0
"""Answers that outgrow what was reserved for them, and who makes room.

Only a decode row that lacks a block, or its workload's budget, ever preempts. The victim gives up
its KV and computes it again later; it is the one of the lowest priority that loses the least.
Never does it lose more often than `request.MOST_PREEMPTIONS` times.
"""

from collections.abc import Iterable, Mapping

from headway_server.scheduler.draft import Draft
from headway_server.scheduler.kv import KvSpace
from headway_server.scheduler.request import Request
from headway_server.scheduler.settings import Capacity
from headway_server.scheduler.workload import Workload


class Growth:
    """Every row that `plan_decodes` leaves in the step has the KV it writes to."""

    def __init__(self, capacity: Capacity, kv: KvSpace, workloads: Mapping[str, Workload]) -> None:
        self._capacity = capacity
        self._kv = kv
        self._workloads = workloads

    def plan_decodes(self, draft: Draft) -> None:
        sitting_out = set()
        for workload in self._workloads.values():
            for request in list(workload.decoding.values()):
                if request.generated > request.reserved_output and not self._has_room(
                    request, workload, draft
                ):
                    sitting_out.add(request.request_id)
        for workload in self._workloads.values():
            draft.decode += (
                [request_id for request_id in workload.decoding if request_id not in sitting_out]
                if sitting_out
                else workload.decoding
            )

    def _has_room(self, request: Request, workload: Workload, draft: Draft) -> bool:
        """Raises the reservation by a block, if need be by preempting. False: not in this step."""
        while request.request_id in workload.decoding:
            reserved_output = self._next_reservation(request)
            if self._over_budget(workload, reserved_output - request.reserved_output):
                rivals = [workload]
            elif self._lacks_block(request, reserved_output):
                rivals = list(self._workloads.values())
            else:
                workload.grow(request, reserved_output)
                self._kv.extend(request.request_id, request.reserve)
                return True
            if any(rival.finishing for rival in rivals):
                return False
            self._preempt(victim(rivals), draft)
        return False

    def _next_reservation(self, request: Request) -> int:
        """All of the block that the next token is in."""
        blocks = self._capacity.blocks_for(request.context)
        room = blocks * self._capacity.block_size - request.prompt_tokens
        return min(request.max_new_tokens, room)

    def _over_budget(self, workload: Workload, tokens: int) -> bool:
        """A budget that was lowered below what runs only stops admission; and whoever is alone
        may finish."""
        budget = workload.policy.knobs.max_batch_total_tokens
        reserved = workload.reserved_tokens
        return reserved <= budget < reserved + tokens and len(workload.running) > 1

    def _lacks_block(self, request: Request, reserved_output: int) -> bool:
        blocks = self._capacity.blocks_for(request.prompt_tokens + reserved_output)
        return blocks - self._capacity.blocks_for(request.reserve) > self._kv.free_blocks

    def _preempt(self, request: Request, draft: Draft) -> None:
        """What comes free is for those who run: nobody is let in by this step."""
        self._kv.release(request.request_id)
        self._workloads[request.workload].preempt(request)
        draft.preempted.append(request.request_id)
        draft.kv_is_short = True


def victim(rivals: Iterable[Workload]) -> Request:
    """There is one: whoever has outgrown its reservation may be preempted itself."""
    candidates = (
        (workload.policy.priority, request.lost_if_preempted, -request.place, request)
        for workload in rivals
        for request in workload.running.values()
        if request.may_be_preempted
    )
    return min(candidates, key=lambda candidate: candidate[:3])[-1]
