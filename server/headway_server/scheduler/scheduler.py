# SPDX-License-Identifier: Apache-2.0
"""Continuous batching: who is in the next step, and how many prompt tokens each computes.

A step is `plan`, `launched`, `settle`; the next may be planned before this one is settled. Between
any two of these calls anything may be added, removed or re-tuned. No budget is ever exceeded, and
a request loses its place only to an answer that outgrew its reservation (see `growth`).
"""

import heapq
from collections.abc import Collection, Mapping

from headway_server.scheduler.batch_former import FormerFor
from headway_server.scheduler.batches import Batches
from headway_server.scheduler.draft import Draft
from headway_server.scheduler.formation import named_former
from headway_server.scheduler.growth import Growth
from headway_server.scheduler.kv import CountedKv, KvSpace
from headway_server.scheduler.length import LengthPredictor
from headway_server.scheduler.plan import Plan
from headway_server.scheduler.planner import Planner
from headway_server.scheduler.refused import Refusal, Refused
from headway_server.scheduler.request import Request
from headway_server.scheduler.settings import Capacity, Formation, Settings
from headway_server.scheduler.workload import Workload


class Scheduler:
    """`predictor` None expects every answer to be as long as it may. `former_for` gives the policy
    that forms batches, by default the one that the settings name; a policy of None is continuous
    batching."""

    def __init__(
        self,
        capacity: Capacity,
        settings: Settings,
        kv: KvSpace | None = None,
        predictor: LengthPredictor | None = None,
        former_for: FormerFor | None = None,
    ) -> None:
        self.capacity = capacity
        self.predictor = predictor
        self.prompt_room = capacity.step_tokens
        self.preemptions = 0
        self._kv = kv or CountedKv(capacity.kv_blocks, capacity.block_size)
        self._settings = settings
        self._workloads = {policy.name: Workload(policy) for policy in settings.workloads}
        self._requests: dict[str, Request] = {}
        self._deadlines: list[tuple[float, str]] = []
        self._growth = Growth(capacity, self._kv, self._workloads)
        self._planner = Planner(capacity, self._kv, self._workloads)
        self._batches = Batches(former_for or named_former, settings.formation, self._workloads)
        self._set_order()

    @property
    def workloads(self) -> Mapping[str, Workload]:
        return self._workloads

    @property
    def revision(self) -> str:
        return self._settings.revision

    @property
    def free_blocks(self) -> int:
        return self._kv.free_blocks

    @property
    def is_empty(self) -> bool:
        return not self._requests

    def add(self, request: Request) -> None:
        """Queues a request. Raises Refused if it can never run or may not wait."""
        workload = self._workloads.get(request.workload)
        if workload is None or workload.draining:
            known = ", ".join(name for name, w in self._workloads.items() if not w.draining)
            raise Refused(
                Refusal.UNKNOWN_WORKLOAD, f"no workload {request.workload!r} here; known: {known}"
            )
        if request.request_id in self._requests:
            raise Refused(Refusal.INVALID, f"request id {request.request_id!r} is in use")
        if request.prompt_tokens < 1 or request.max_new_tokens < 1:
            raise Refused(
                Refusal.INVALID, "a request needs at least one prompt and one output token"
            )
        if (limit := self._largest_request(workload)) < request.largest:
            raise Refused(Refusal.TOO_LARGE, too_large(request, limit))
        self._expect(request)
        was_active = workload.active
        workload.enqueue(request, held=self._batches.are_formed)
        if not was_active:
            self._forget_idle_time(workload)
        self._batches.hold(request)
        self._requests[request.request_id] = request
        if request.deadline is not None:
            heapq.heappush(self._deadlines, (request.deadline, request.request_id))

    def remove(self, request_id: str) -> Request | None:
        """Takes a request out wherever it is; its blocks are free for the next plan."""
        request = self._requests.pop(request_id, None)
        if request is None:
            return None
        workload = self._workloads[request.workload]
        if workload.release(request):
            self._kv.release(request_id)
        else:
            self._batches.forget(request_id)
        if workload.draining and not workload.active:
            del self._workloads[workload.policy.name]
        return request

    def remove_past_deadline(self, now: float) -> list[Request]:
        leaving = []
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, request_id = heapq.heappop(self._deadlines)
            request = self._requests.get(request_id)
            if request is not None and request.deadline == deadline:
                leaving.append(request)
        return self._dismiss(leaving)

    def remove_timed_out(self, now: float) -> list[Request]:
        """Requests that never ran and waited longer than their workload's queue timeout."""
        leaving = []
        for workload in list(self._workloads.values()):
            timeout = workload.policy.queue_timeout_seconds
            if timeout is not None:
                leaving += self._dismiss(workload.waiting.arrived_by(now - timeout))
        return leaving

    def apply(self, settings: Settings) -> list[Request]:
        """Takes a new set into force and returns the waiting requests that cannot fit any more.

        Running requests are never touched: a lower budget only stops admission until they have
        drained. A workload that is gone serves what it had accepted, under its last policy. Another
        way to form batches waits for an empty batch, and until then nobody is let in.
        """
        old, self._settings = self._settings, settings
        policies = {policy.name: policy for policy in settings.workloads}
        for name, workload in list(self._workloads.items()):
            workload.draining = name not in policies
            if workload.draining and not workload.active:
                del self._workloads[name]
        leaving = []
        for name, policy in policies.items():
            workload = self._workloads.setdefault(name, Workload(policy))
            workload.adopt(policy)
            limit = self._largest_request(workload)
            leaving += self._dismiss(workload.waiting.larger_than(limit))
        self._adopt_formation(old.formation, settings.formation)
        return leaving

    def halve_prompt_room(self) -> None:
        """There was no memory for a step: from now on each computes at most half as many prompt
        tokens, but a block's worth."""
        self.prompt_room = max(self.capacity.block_size, self.prompt_room // 2)

    def due(self) -> float | None:
        """If the plan is empty: when that may change without anything being added or settled."""
        moments = [self._deadlines[0][0]] if self._deadlines else []
        batch_due = self._batches.due()
        return min([*moments, batch_due] if batch_due is not None else moments, default=None)

    def plan(self, now: float) -> Plan:
        """The next step. Not empty while there is any request, unless the requests wait for a
        batch to form or for a step that was not settled yet."""
        self._batches.release(now)
        draft = Draft(now)
        self._growth.plan_decodes(draft)
        self.preemptions += len(draft.preempted)
        for request_id in draft.preempted:
            self._expect(self._requests[request_id])
        draft.room = min(self.capacity.step_tokens - len(draft.decode), self.prompt_room)
        self._planner.plan_prompts(
            draft,
            self._settings.starvation_seconds,
            gated=not self._batches.are_formed,
            closed=self._batches.changing,
        )
        return draft.plan()

    def launched(self, plan: Plan) -> None:
        """The step is under way: counts move on as if each row that samples had its token.

        Requests removed since the plan are passed over."""
        served: set[str] = set()
        for request_id in plan.decode:
            request = self._requests.get(request_id)
            if request is not None:
                request.computed += 1
                self._workloads[request.workload].advance(request)
                served.add(request.workload)
        for chunk in plan.chunks:
            request = self._requests.get(chunk.request_id)
            if request is not None:
                request.computed += chunk.tokens
                if chunk.last:
                    self._workloads[request.workload].advance(request)
                    served.add(request.workload)
        for name in served:
            self._workloads[name].gate.served()

    def settle(self, plan: Plan, stopped: Collection[str] = ()) -> list[str]:
        """The step has brought its tokens; `stopped` are requests that ended by their content.

        Returns those that left. Requests removed since the plan are passed over.
        """
        finished = []
        for request_id in plan.sampling:
            request = self._requests.get(request_id)
            if request is None:
                continue
            request.settled += 1
            if request_id in stopped or request.settled >= request.max_new_tokens:
                finished.append(request_id)
                if self.predictor:
                    self.predictor.learn(request, request.settled)
        for request_id in finished:
            self.remove(request_id)
        return finished

    def _expect(self, request: Request) -> None:
        """How long the answer will be, and how much of it is reserved when it is let in."""
        request.expected_output = request.reserved_output = request.max_new_tokens
        if self.predictor is None:
            return
        expectation = self.predictor.expect(request, request.generated)
        request.expected_output = expectation.tokens
        if self._settings.formation.output_reservation == "Expected" and request.may_be_preempted:
            bound = max(expectation.bound, request.generated + 1)
            request.reserved_output = min(bound, request.max_new_tokens)

    def _adopt_formation(self, old: Formation, new: Formation) -> None:
        if (old.output_reservation, old.length_predictor) != (
            new.output_reservation,
            new.length_predictor,
        ):
            for workload in self._workloads.values():
                for request in workload.waiting:
                    self._expect(request)
        self._set_order()
        self._batches.adopt(new)

    def _set_order(self) -> None:
        for workload in self._workloads.values():
            workload.waiting.length_aware = self._settings.formation.length_aware
            workload.waiting.reorder()

    def _largest_request(self, workload: Workload) -> int:
        return min(workload.policy.knobs.max_batch_total_tokens, self.capacity.kv_tokens)

    def _forget_idle_time(self, workload: Workload) -> None:
        """A workload that comes back is owed nothing for the time in which it asked for nothing."""
        others = [w.service for w in self._workloads.values() if w.active and w is not workload]
        workload.service = max(workload.service, min(others, default=0.0))

    def _dismiss(self, requests: list[Request]) -> list[Request]:
        for request in requests:
            self.remove(request.request_id)
        return requests


def too_large(request: Request, limit: int) -> str:
    return (
        f"the request needs {request.largest} tokens ({request.prompt_tokens} prompt + "
        f"{request.max_new_tokens} output), workload {request.workload} has {limit} in all"
    )
