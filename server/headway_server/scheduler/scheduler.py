# SPDX-License-Identifier: Apache-2.0
"""Continuous batching: who is in the next step, and how many prompt tokens each computes.

One `plan` and one `commit` a step; between two steps anything may be added, removed or re-tuned.
The scheduler never lets a budget be exceeded and never takes a running request's place away.
"""

import heapq
from collections import deque
from collections.abc import Collection, Mapping

from headway_server.scheduler.draft import Draft, Turn
from headway_server.scheduler.plan import Blocked, Chunk, Plan
from headway_server.scheduler.refused import Refusal, Refused
from headway_server.scheduler.request import Request
from headway_server.scheduler.settings import Capacity, Settings
from headway_server.scheduler.workload import Workload


class Scheduler:
    """Order between workloads, asked anew after each chunk that is placed:

    1. a workload whose prompts got nothing for `starvation_seconds` goes first, for one chunk;
    2. then the higher priority, strictly;
    3. among equals the one that was served least for its weight.

    When a workload's head lacks KV blocks, nobody after it may take blocks in this step: the
    blocks that come free are for it. With 1. that makes starvation impossible. A workload held
    back by its own policy (gate, budget, limit) holds back nobody else.
    """

    def __init__(self, capacity: Capacity, settings: Settings) -> None:
        self.capacity = capacity
        self.free_blocks = capacity.kv_blocks
        self._settings = settings
        self._workloads = {policy.name: Workload(policy) for policy in settings.workloads}
        self._requests: dict[str, Request] = {}
        self._deadlines: list[tuple[float, str]] = []

    @property
    def workloads(self) -> Mapping[str, Workload]:
        return self._workloads

    @property
    def revision(self) -> str:
        return self._settings.revision

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
        if (limit := self._largest_request(workload)) < request.reserve:
            raise Refused(Refusal.TOO_LARGE, too_large(request, limit))
        was_active = workload.active
        workload.enqueue(request)
        if not was_active:
            self._forget_idle_time(workload)
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
            self.free_blocks += self.capacity.blocks_for(request.reserve)
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
        """Waiting requests that waited longer than their workload's queue timeout."""
        leaving = []
        for workload in list(self._workloads.values()):
            timeout = workload.policy.queue_timeout_seconds
            if timeout is not None:
                leaving += self._dismiss(workload.waiting.arrived_by(now - timeout))
        return leaving

    def apply(self, settings: Settings) -> list[Request]:
        """Takes a new set into force and returns the waiting requests that cannot fit any more.

        Running requests are never touched: a lower budget only stops admission until they have
        drained. A workload that is gone serves what it had accepted, under its last policy.
        """
        self._settings = settings
        policies = {policy.name: policy for policy in settings.workloads}
        for name, workload in list(self._workloads.items()):
            workload.draining = name not in policies
            if workload.draining and not workload.active:
                del self._workloads[name]
        leaving = []
        for name, policy in policies.items():
            workload = self._workloads.setdefault(name, Workload(policy))
            workload.policy = policy
            limit = self._largest_request(workload)
            leaving += self._dismiss(workload.waiting.larger_than(limit))
        return leaving

    def plan(self, now: float) -> Plan:
        """The next step. Not empty while there is any request: nothing waits for nothing."""
        workloads = self._workloads.values()
        decode = tuple(request.request_id for w in workloads for request in w.decoding())
        draft = Draft(now, self.capacity.step_tokens - len(decode))
        turns = [
            Turn(
                workload,
                workload.gate_is_open(),
                workload.policy.knobs.max_batch_prefill_tokens,
                deque(workload.prefilling()),
            )
            for workload in workloads
            if workload.active
        ]
        while turns:
            turn = min(turns, key=lambda turn: self._rank(turn.workload, now))
            if not (self._continue_prefill(turn, draft) or self._admit_head(turn, draft)):
                turns.remove(turn)
        for name, reason in draft.blocked.items():
            self._workloads[name].blocked[reason] += 1
        return Plan(decode, tuple(draft.chunks), tuple(draft.admitted), draft.blocked)

    def commit(self, plan: Plan, stopped: Collection[str] = ()) -> list[str]:
        """Books a step that was carried out; `stopped` are requests that ended by their content.

        Returns those that left. Requests removed since the plan are passed over.
        """
        prompt_tokens = {chunk.request_id: chunk.tokens for chunk in plan.chunks}
        served: set[str] = set()
        finished = []
        for request_id in plan.request_ids:
            request = self._requests.get(request_id)
            if request is None:
                continue
            request.computed += prompt_tokens.get(request_id, 0)
            if request.prompt_left:
                continue
            request.generated += 1
            served.add(request.workload)
            if request_id in stopped or request.generated >= request.max_new_tokens:
                finished.append(request_id)
        for name in served:
            self._workloads[name].gate.served()
        for request_id in finished:
            self.remove(request_id)
        return finished

    def _rank(self, workload: Workload, now: float) -> tuple[bool, int, float]:
        starving = now - workload.served_at >= self._settings.starvation_seconds
        return (not starving, -workload.policy.priority, workload.service)

    def _continue_prefill(self, turn: Turn, draft: Draft) -> bool:
        """Places the next chunk of the workload's oldest unfinished prompt, if there is room."""
        if not turn.unfinished or not min(turn.prompt_tokens, draft.room):
            return False
        self._place_chunk(turn.unfinished.popleft(), turn, draft)
        return True

    def _admit_head(self, turn: Turn, draft: Draft) -> bool:
        """Lets the head of the workload's queue in, or notes what keeps it out."""
        workload = turn.workload
        if not workload.waiting:
            return False
        request = workload.next_waiting()
        obstacle = self._obstacle(request, turn, draft) if request else Blocked.LIMIT
        if request is None or obstacle:
            draft.blocked[workload.policy.name] = obstacle or Blocked.LIMIT
            return False
        workload.admit(request, draft.now)
        self.free_blocks -= self.capacity.blocks_for(request.reserve)
        draft.admitted.append(request.request_id)
        self._place_chunk(request, turn, draft)
        return True

    def _obstacle(self, request: Request, turn: Turn, draft: Draft) -> Blocked | None:
        if not turn.gate_open:
            return Blocked.GATE
        if obstacle := turn.workload.obstacle(request):
            return obstacle
        if draft.kv_is_short or self.capacity.blocks_for(request.reserve) > self.free_blocks:
            draft.kv_is_short = True
            return Blocked.KV
        if not min(turn.prompt_tokens, draft.room) or self._running() >= self.capacity.step_tokens:
            return Blocked.PREFILL_BUDGET
        return None

    def _place_chunk(self, request: Request, turn: Turn, draft: Draft) -> None:
        tokens = min(request.prompt_left, turn.prompt_tokens, draft.room)
        last = tokens == request.prompt_left
        draft.chunks.append(Chunk(request.request_id, request.computed, tokens, last))
        draft.room -= tokens
        turn.prompt_tokens -= tokens
        turn.workload.served_at = draft.now

    def _running(self) -> int:
        return sum(len(workload.running) for workload in self._workloads.values())

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
        f"the request needs {request.reserve} tokens ({request.prompt_tokens} prompt + "
        f"{request.max_new_tokens} output), workload {request.workload} has {limit} in all"
    )
