# SPDX-License-Identifier: Apache-2.0
"""The waiting requests of one workload, in the order in which they reach admission.

Between tenants the one goes first that was served least, by a virtual token counter: it is
charged at admission for the prompt and the reserved output, and refunded at the end what was not
used. Within a tenant, see `tenant.claim`. It never looks at budgets, and nothing here is searched:
a step costs the logarithm of the number of the waiting.
"""

import heapq
from collections.abc import Iterator
from itertools import count, takewhile

from headway_server.scheduler.request import Request
from headway_server.scheduler.tenant import Tenant, reserved_charge, used_charge


class WaitingQueue:
    """`length_aware` orders by expected output too; `reorder` after it was changed."""

    def __init__(self) -> None:
        self.length_aware = False
        self._fresh: dict[str, Request] = {}
        self._preempted: dict[str, Request] = {}
        self._held: set[str] = set()
        self._tenants: dict[str, Tenant] = {}
        self._order: list[tuple[int, float, int, int, Tenant]] = []
        self._idle: list[tuple[int, int, Tenant]] = []
        self._last_served = 0
        self._places = count()
        self._ticks = count()

    def __len__(self) -> int:
        return len(self._fresh) + len(self._preempted)

    def __iter__(self) -> Iterator[Request]:
        yield from self._fresh.values()
        yield from self._preempted.values()

    @property
    def released(self) -> int:
        """The waiting that are not held back by a batch former."""
        return len(self) - len(self._held)

    @property
    def oldest_arrival(self) -> float | None:
        first = next(iter(self._fresh.values()), None)
        arrivals = [request.arrival for request in self._preempted.values()]
        return min([*arrivals, first.arrival] if first else arrivals, default=None)

    def push(self, request: Request, held: bool = False) -> None:
        """A request comes to wait; if it is `held`, it is not admitted before `free`."""
        request.place = next(self._places)
        self._fresh[request.request_id] = request
        self._enter(request, held)

    def push_back(self, request: Request) -> None:
        """A running request has lost its place; it keeps its old claim."""
        tenant = self._tenants[request.tenant]
        tenant.running -= 1
        tenant.parked = False
        self._preempted[request.request_id] = request
        self._enter(request, held=False)

    def hold_fresh(self) -> list[Request]:
        """From now on, nobody who never ran is admitted before `free`. Returns those."""
        self._held = set(self._fresh)
        self.reorder()
        return list(self._fresh.values())

    def free_all(self) -> None:
        for request_id in list(self._held):
            self.free(self._fresh[request_id])

    def free(self, request: Request) -> None:
        self._held.discard(request.request_id)
        tenant = self._tenants[request.tenant]
        tenant.push(request, self.length_aware)
        self._place(tenant)

    def head(self, limit: int | None) -> Request | None:
        """The next to be admitted, of a tenant that has fewer than `limit` running. If it does
        not fit, nobody overtakes it."""
        while self._order:
            entry = self._order[0]
            tenant = entry[-1]
            if tenant.entry is not entry:
                heapq.heappop(self._order)
            elif limit is not None and tenant.running >= limit:
                heapq.heappop(self._order)
                tenant.entry = None
                tenant.parked = True
            else:
                return tenant.ready[0][-1]
        return None

    def admit(self, request: Request) -> None:
        """The head leaves the queue to run, and its tenant pays for it."""
        tenant = self._tenants[request.tenant]
        self._last_served = tenant.served
        self._take(request)
        tenant.waiting -= 1
        tenant.running += 1
        tenant.charge(request, reserved_charge(request))
        self._place(tenant)

    def charge_growth(self, request: Request) -> None:
        tenant = self._tenants[request.tenant]
        tenant.charge(request, reserved_charge(request))
        self._place(tenant)

    def leave(self, request: Request, was_running: bool) -> None:
        """A request is over; its tenant gets back what it did not use."""
        tenant = self._tenants[request.tenant]
        if was_running:
            tenant.running -= 1
            tenant.parked = False
        else:
            self._take(request)
            tenant.waiting -= 1
        if request.charged:
            tenant.charge(request, used_charge(request))
        self._place(tenant)
        self._forget_idle(tenant)

    def reorder(self) -> None:
        """Something that the order depends on has changed: a tenant's limit, a claim."""
        for tenant in self._tenants.values():
            tenant.parked = False
            self._tidy(tenant)
            self._place(tenant)

    def larger_than(self, tokens: int) -> list[Request]:
        """Of those that never ran; whoever did is served to the end."""
        return [request for request in self._fresh.values() if request.largest > tokens]

    def arrived_by(self, moment: float) -> list[Request]:
        """Of those that never ran, the longest waiting first."""
        return list(takewhile(lambda request: request.arrival <= moment, self._fresh.values()))

    def _enter(self, request: Request, held: bool) -> None:
        tenant = self._tenants.setdefault(request.tenant, Tenant(request.tenant))
        if not tenant.waiting:
            tenant.served = max(tenant.served, self._least_served())
            tenant.parked = False
        tenant.waiting += 1
        if held:
            self._held.add(request.request_id)
        else:
            tenant.push(request, self.length_aware)
        self._place(tenant)

    def _take(self, request: Request) -> None:
        if self._fresh.pop(request.request_id, None) is None:
            del self._preempted[request.request_id]
        self._held.discard(request.request_id)

    def _is_ready(self, request: Request) -> bool:
        request_id = request.request_id
        waiting = self._fresh.get(request_id) or self._preempted.get(request_id)
        return waiting is request and request_id not in self._held

    def _place(self, tenant: Tenant) -> None:
        """Puts the tenant where its counter and its first request say, if that has changed."""
        if len(tenant.ready) > 2 * tenant.waiting + 64:
            self._tidy(tenant)
        while tenant.ready and not self._is_ready(tenant.ready[0][-1]):
            heapq.heappop(tenant.ready)
        if not tenant.ready or tenant.parked:
            tenant.entry = None
            return
        key, place, _ = tenant.ready[0]
        old = tenant.entry
        if old is None or old[:3] != (tenant.served, key, place):
            tenant.entry = (tenant.served, key, place, next(self._ticks), tenant)
            heapq.heappush(self._order, tenant.entry)
            if len(self._order) > 4 * len(self._tenants) + 64:
                self._order = [one.entry for one in self._tenants.values() if one.entry]
                heapq.heapify(self._order)

    def _tidy(self, tenant: Tenant) -> None:
        requests = [request for *_, request in tenant.ready if self._is_ready(request)]
        tenant.ready = []
        for request in requests:
            tenant.push(request, self.length_aware)

    def _least_served(self) -> int:
        while self._order and self._order[0][-1].entry is not self._order[0]:
            heapq.heappop(self._order)
        return self._order[0][0] if self._order else self._last_served

    def _forget_idle(self, tenant: Tenant) -> None:
        """A tenant that asks for nothing is kept only as long as it was served more than others."""
        if tenant.idle:
            heapq.heappush(self._idle, (tenant.served, next(self._ticks), tenant))
        least = self._least_served()
        while self._idle and self._idle[0][0] <= least:
            *_, candidate = heapq.heappop(self._idle)
            known = self._tenants.get(candidate.name) is candidate
            if known and candidate.idle and candidate.served <= least:
                del self._tenants[candidate.name]
