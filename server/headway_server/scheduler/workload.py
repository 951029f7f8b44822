# SPDX-License-Identifier: Apache-2.0
"""One workload's requests and books: who waits, who runs, what is reserved, what it was served.

It knows its own policy only. What it shares with other workloads (KV blocks, the tokens of a
step, the order between them) is the scheduler's affair.
"""

from collections import Counter
from collections.abc import Iterator

from headway_server.scheduler.gate import AdmissionGate
from headway_server.scheduler.plan import Blocked
from headway_server.scheduler.queue import WaitingQueue
from headway_server.scheduler.refused import Refusal, Refused
from headway_server.scheduler.request import Request
from headway_server.scheduler.settings import WorkloadPolicy


class Workload:
    """`service` is the tokens admitted so far divided by the weight: the smaller, the more it is
    owed. `served_at` is when its prompts last got on, or when there last were none to get on."""

    def __init__(self, policy: WorkloadPolicy) -> None:
        self.policy = policy
        self.draining = False
        self.waiting = WaitingQueue()
        self.running: dict[str, Request] = {}
        self.reserved_tokens = 0
        self.gate = AdmissionGate()
        self.blocked: Counter[Blocked] = Counter()
        self._running_by_tenant: Counter[str] = Counter()
        self.service = 0.0
        self.served_at = float("-inf")

    def decoding(self) -> Iterator[Request]:
        return (request for request in self.running.values() if not request.prompt_left)

    def prefilling(self) -> Iterator[Request]:
        return (request for request in self.running.values() if request.prompt_left)

    @property
    def active(self) -> bool:
        return bool(self.running or self.waiting)

    def enqueue(self, request: Request) -> None:
        """Raises Refused when the queue is full."""
        limit = self.policy.max_queue_length
        if limit is not None and len(self.waiting) >= limit:
            raise Refused(
                Refusal.QUEUE_FULL,
                f"workload {self.policy.name} has {len(self.waiting)} requests waiting, "
                f"its limit is {limit}; try again later",
            )
        if not self.waiting and not any(self.prefilling()):
            self.served_at = max(self.served_at, request.arrival)
        self.waiting.push(request)

    def gate_is_open(self) -> bool:
        return self.gate.is_open(self.policy.knobs, len(self.waiting), len(self.running))

    def next_waiting(self) -> Request | None:
        return self.waiting.head(self._below_tenant_limit)

    def obstacle(self, request: Request) -> Blocked | None:
        """What in its own policy keeps a waiting request from running, if anything."""
        limit = self.policy.max_running
        if limit is not None and len(self.running) >= limit:
            return Blocked.LIMIT
        if self.reserved_tokens + request.reserve > self.policy.knobs.max_batch_total_tokens:
            return Blocked.BUDGET
        return None

    def admit(self, request: Request, now: float) -> None:
        self.waiting.remove(request.request_id)
        self.running[request.request_id] = request
        self._running_by_tenant[request.tenant] += 1
        request.admitted_at = now
        self.reserved_tokens += request.reserve
        self.service += request.reserve / self.policy.weight
        self.gate.admitted()

    def release(self, request: Request) -> bool:
        """Takes a request out; tells whether it was running, rather than waiting."""
        if self.running.pop(request.request_id, None) is None:
            self.waiting.remove(request.request_id)
            return False
        self.reserved_tokens -= request.reserve
        self._running_by_tenant[request.tenant] -= 1
        return True

    def _below_tenant_limit(self, request: Request) -> bool:
        limit = self.policy.max_running_per_tenant
        return limit is None or self._running_by_tenant[request.tenant] < limit
