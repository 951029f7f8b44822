# SPDX-License-Identifier: Apache-2.0
"""One workload's requests and books: who waits, who runs, what is reserved, what it was served.

It knows its own policy only. What it shares with other workloads (KV blocks, the tokens of a
step, the order between them) is the planner's affair.
"""

from collections import Counter

from headway_server.scheduler.gate import AdmissionGate
from headway_server.scheduler.plan import Blocked
from headway_server.scheduler.queue import WaitingQueue
from headway_server.scheduler.refused import Refusal, Refused
from headway_server.scheduler.request import Request
from headway_server.scheduler.settings import WorkloadPolicy


class Workload:
    """`service` is the tokens admitted so far divided by the weight: the smaller, the more it is
    owed. `served_at` is when its prompts last got on, or when there last were none to get on.

    A running request is `prefilling`, then `decoding`; then it is in neither, while its last token
    is on its way.
    """

    def __init__(self, policy: WorkloadPolicy) -> None:
        self.policy = policy
        self.draining = False
        self.waiting = WaitingQueue()
        self.running: dict[str, Request] = {}
        self.prefilling: dict[str, Request] = {}
        self.decoding: dict[str, Request] = {}
        self.reserved_tokens = 0
        self.gate = AdmissionGate()
        self.blocked: Counter[Blocked] = Counter()
        self.preemptions = 0
        self.service = 0.0
        self.served_at = float("-inf")

    @property
    def active(self) -> bool:
        return bool(self.running or self.waiting)

    @property
    def finishing(self) -> bool:
        """Whether a running request needs no more steps."""
        return len(self.running) > len(self.prefilling) + len(self.decoding)

    def enqueue(self, request: Request, held: bool) -> None:
        """Raises Refused when the queue is full."""
        limit = self.policy.max_queue_length
        if limit is not None and len(self.waiting) >= limit:
            raise Refused(
                Refusal.QUEUE_FULL,
                f"workload {self.policy.name} has {len(self.waiting)} requests waiting, "
                f"its limit is {limit}; try again later",
            )
        if not self.waiting and not self.prefilling:
            self.served_at = max(self.served_at, request.arrival)
        self.waiting.push(request, held)

    def adopt(self, policy: WorkloadPolicy) -> None:
        changed = policy.max_running_per_tenant != self.policy.max_running_per_tenant
        self.policy = policy
        if changed:
            self.waiting.reorder()

    def gate_is_open(self) -> bool:
        return self.gate.is_open(self.policy.knobs, len(self.waiting), len(self.running))

    def next_waiting(self) -> Request | None:
        return self.waiting.head(self.policy.max_running_per_tenant)

    def obstacle(self, request: Request) -> Blocked | None:
        """What in its own policy keeps a waiting request from running, if anything.

        Whoever was preempted may run alone even if the budget was lowered below it since.
        """
        limit = self.policy.max_running
        if limit is not None and len(self.running) >= limit:
            return Blocked.LIMIT
        over = self.reserved_tokens + request.reserve > self.policy.knobs.max_batch_total_tokens
        if over and (self.running or not request.preemptions):
            return Blocked.BUDGET
        return None

    def admit(self, request: Request, now: float) -> None:
        self.waiting.admit(request)
        self.running[request.request_id] = request
        self.prefilling[request.request_id] = request
        self.reserved_tokens += request.reserve
        if request.admitted_at is None:
            request.admitted_at = now
            self.service += request.reserve / self.policy.weight
        self.gate.admitted()

    def advance(self, request: Request) -> None:
        """A step was launched in which the request samples a token."""
        request.generated += 1
        if self.prefilling.pop(request.request_id, None):
            self.decoding[request.request_id] = request
        if request.generated >= request.max_new_tokens:
            del self.decoding[request.request_id]

    def grow(self, request: Request, reserved_output: int) -> None:
        self.reserved_tokens += reserved_output - request.reserved_output
        request.reserved_output = reserved_output
        self.waiting.charge_growth(request)

    def preempt(self, request: Request) -> None:
        """A running request goes back to its queue."""
        self._stop_running(request)
        self.preemptions += 1
        request.lose_place()
        self.waiting.push_back(request)

    def release(self, request: Request) -> bool:
        """Takes a request out; tells whether it was running, rather than waiting."""
        was_running = request.request_id in self.running
        if was_running:
            self._stop_running(request)
        self.waiting.leave(request, was_running)
        return was_running

    def _stop_running(self, request: Request) -> None:
        del self.running[request.request_id]
        self.prefilling.pop(request.request_id, None)
        self.decoding.pop(request.request_id, None)
        self.reserved_tokens -= request.reserve
