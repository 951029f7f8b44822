# SPDX-License-Identifier: Apache-2.0
"""Which prompts get on in a step, and who is let in: the order between workloads and within one.

It places one chunk at a time and asks anew after each. What it can never do: exceed the step's
tokens, a workload's prompt tokens, or the KV that is free.
"""

from collections import deque
from collections.abc import Mapping

from headway_server.scheduler.draft import Draft, Turn
from headway_server.scheduler.kv import KvSpace
from headway_server.scheduler.plan import Blocked, Chunk
from headway_server.scheduler.request import Request
from headway_server.scheduler.settings import Capacity
from headway_server.scheduler.workload import Workload

# A long prompt gets at least one token in so many of what its workload computes.
LONG_PROMPT_SHARE = 4


class Planner:
    """Order between workloads, asked anew after each chunk that is placed:

    1. a workload whose prompts got nothing for `starvation_seconds` goes first, for one chunk;
    2. then the higher priority, strictly;
    3. among equals the one that was served least for its weight.

    When a workload's head lacks KV blocks, nobody after it may take blocks in this step: the
    blocks that come free are for it. With 1. that makes starvation impossible. A workload held
    back by its own policy (gate, budget, limit) holds back nobody else.

    Within a workload, prompts that can end in this step go before the next chunk of a long one,
    of which the oldest is sure of its share.
    """

    def __init__(self, capacity: Capacity, kv: KvSpace, workloads: Mapping[str, Workload]) -> None:
        self._capacity = capacity
        self._kv = kv
        self._workloads = workloads

    def plan_prompts(
        self, draft: Draft, starvation_seconds: float, gated: bool, closed: bool
    ) -> None:
        """`gated`: TGI's two knobs hold. `closed`: nobody is let in."""
        running = sum(len(workload.running) for workload in self._workloads.values())
        turns = [
            Turn(
                workload,
                not closed and (not gated or workload.gate_is_open()),
                workload.policy.knobs.max_batch_prefill_tokens,
                deque(workload.prefilling.values()),
            )
            for workload in self._workloads.values()
            if workload.prefilling or workload.waiting.released
        ]
        while turns:
            turn = min(turns, key=lambda turn: rank(turn.workload, draft.now, starvation_seconds))
            if not self._place_next(turn, draft, running + len(draft.admitted)):
                turns.remove(turn)
        for name, reason in draft.blocked.items():
            self._workloads[name].blocked[reason] += 1

    def _place_next(self, turn: Turn, draft: Draft, running: int) -> bool:
        """Places the workload's next chunk or lets one more in, if either can be."""
        if turn.set_aside is None:
            self._set_aside(turn, draft)
        return (
            self._finish_prompt(turn, draft)
            or self._admit_head(turn, draft, running)
            or self._continue_prompt(turn, draft)
        )

    def _set_aside(self, turn: Turn, draft: Draft) -> None:
        turn.set_aside = 0
        if turn.unfinished:
            turn.set_aside = min(turn.unfinished[0].prompt_left, share(room_for(turn, draft)))
            turn.prompt_tokens -= turn.set_aside
            draft.room -= turn.set_aside

    def _finish_prompt(self, turn: Turn, draft: Draft) -> bool:
        """Places what is left of an admitted prompt that can end in this step."""
        for index, request in enumerate(turn.unfinished):
            own = turn.set_aside or 0 if index == 0 else 0
            if request.prompt_left <= room_for(turn, draft) + own:
                if index == 0:
                    self._use_set_aside(turn, draft)
                del turn.unfinished[index]
                self._place_chunk(request, room_for(turn, draft), turn, draft)
                return True
        return False

    def _continue_prompt(self, turn: Turn, draft: Draft) -> bool:
        """Places a chunk of the workload's oldest unfinished prompt."""
        self._use_set_aside(turn, draft)
        room = room_for(turn, draft)
        if not turn.unfinished or not room:
            return False
        self._place_chunk(turn.unfinished.popleft(), room, turn, draft)
        return True

    def _use_set_aside(self, turn: Turn, draft: Draft) -> None:
        turn.prompt_tokens += turn.set_aside or 0
        draft.room += turn.set_aside or 0
        turn.set_aside = 0

    def _admit_head(self, turn: Turn, draft: Draft, running: int) -> bool:
        """Lets the head of the workload's queue in, or notes what keeps it out. A prompt that is
        too long for this step leaves room to those behind it."""
        workload = turn.workload
        if turn.closed or not workload.waiting.released:
            return False
        request = workload.next_waiting()
        obstacle = self._obstacle(request, turn, draft, running) if request else Blocked.LIMIT
        if request is None or obstacle:
            draft.blocked[workload.policy.name] = obstacle or Blocked.LIMIT
            turn.closed = True
            return False
        workload.admit(request, draft.now)
        request.cached_tokens = self._kv.promise(request.request_id, request.reserve)
        request.computed = request.cached_tokens
        draft.admitted.append(request.request_id)
        room = room_for(turn, draft)
        if request.prompt_left <= room:
            self._place_chunk(request, room, turn, draft)
        elif turn.unfinished:
            self._place_chunk(request, share(room), turn, draft)
        else:
            turn.unfinished.append(request)
            self._set_aside(turn, draft)
        return True

    def _obstacle(self, request: Request, turn: Turn, draft: Draft, running: int) -> Blocked | None:
        if not turn.gate_open:
            return Blocked.GATE
        if obstacle := turn.workload.obstacle(request):
            return obstacle
        if draft.kv_is_short or self._lacks_blocks(request):
            draft.kv_is_short = True
            return Blocked.KV
        if not room_for(turn, draft) or running >= self._capacity.step_tokens:
            return Blocked.PREFILL_BUDGET
        return None

    def _lacks_blocks(self, request: Request) -> bool:
        free = self._kv.free_blocks
        if self._capacity.blocks_for(request.reserve) <= free:
            return False
        return self._kv.cost(request.request_id, request.reserve) > free

    def _place_chunk(self, request: Request, room: int, turn: Turn, draft: Draft) -> None:
        left = request.prompt_left
        tokens = min(left, room)
        draft.chunks.append(Chunk(request.request_id, request.computed, tokens, tokens == left))
        draft.room -= tokens
        turn.prompt_tokens -= tokens
        turn.workload.served_at = draft.now


def room_for(turn: Turn, draft: Draft) -> int:
    return min(turn.prompt_tokens, draft.room)


def share(room: int) -> int:
    return -(-room // LONG_PROMPT_SHARE)


def rank(workload: Workload, now: float, starvation_seconds: float) -> tuple[bool, int, float]:
    starving = now - workload.served_at >= starvation_seconds
    return (not starving, -workload.policy.priority, workload.service)
