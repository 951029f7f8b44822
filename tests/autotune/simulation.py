# SPDX-License-Identifier: Apache-2.0
"""A replica in virtual time: the server's own scheduler, and steps that take as long as a formula
says. Deterministic for a seed."""

import heapq
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from headway_api.objectives import Objective
from headway_autotune.observation import ObjectiveCount, Observation, Window, WorkloadSample
from headway_server.scheduler import (
    Blocked,
    Capacity,
    Knobs,
    Plan,
    Request,
    Scheduler,
    Settings,
    WorkloadPolicy,
)

BLOCK = 16


@dataclass(frozen=True)
class Traffic:
    """`clients` send again `think` seconds after an answer, or requests arrive at `per_second`."""

    prompt: int
    output: int
    clients: int = 0
    per_second: float = 0.0


@dataclass(frozen=True)
class Served:
    """One workload of the replica. Step times see only how many requests run."""

    name: str
    objectives: tuple[Objective, ...]
    traffic: Traffic
    priority: int = 0


@dataclass
class Books:
    """What the exporter would count."""

    met: Counter[tuple[str, str, bool]] = field(default_factory=Counter)
    finished: Counter[str] = field(default_factory=Counter)
    reserved: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    peak: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    waiting: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    kv: float = 0.0


class SimulatedReplica:
    def __init__(
        self,
        served: Sequence[Served],
        *,
        kv_tokens: int,
        step_seconds: Callable[[Plan], float],
        seed: int = 7,
    ) -> None:
        self.now = 0.0
        self.budgets: dict[str, int] = {}
        self._served = {one.name: one for one in served}
        self._step_seconds = step_seconds
        self._random = random.Random(seed)
        self._capacity = Capacity(kv_tokens // BLOCK, BLOCK, step_tokens=2048)
        self._scheduler = Scheduler(self._capacity, Settings(()))
        self._arrivals: list[tuple[float, int, str]] = []
        self._sent = 0
        self._first: dict[str, float] = {}
        self._requests: dict[str, Request] = {}
        self._books = Books()
        for one in served:
            for _ in range(one.traffic.clients):
                self._send_after(self._random.random(), one)
            if one.traffic.per_second:
                self._send_after(0.0, one)

    def apply(self, budgets: dict[str, int]) -> None:
        self.budgets = dict(budgets)
        policies = tuple(
            WorkloadPolicy(name, Knobs(budget, 512, 0, 20), self._served[name].priority)
            for name, budget in budgets.items()
        )
        self._scheduler.apply(Settings(policies))

    def advance(self, until: float) -> None:
        while self.now < until:
            self._step(until)

    def observe(self, seconds: float) -> Observation:
        """Let time pass, and tell what a perfect scrape of that window would."""
        start = self.now
        blocked = {name: Counter(w.blocked) for name, w in self._scheduler.workloads.items()}
        self._books = Books()
        self.advance(start + seconds)
        return self._observation(Window(start, self.now), blocked)

    def _step(self, end: float) -> None:
        while self._arrivals and self._arrivals[0][0] <= self.now:
            self._arrive(*heapq.heappop(self._arrivals))
        plan = self._scheduler.plan(self.now)
        if not plan:
            until = self._arrivals[0][0] if self._arrivals else end
            self.now = max(self.now, until)
            return
        seconds = self._step_seconds(plan)
        self._account(seconds)
        self.now += seconds
        first = {chunk.request_id for chunk in plan.chunks if chunk.last}
        self._first |= dict.fromkeys(first, self.now)
        self._scheduler.launched(plan)
        for request_id in self._scheduler.settle(plan):
            self._finish(self._requests.pop(request_id))

    def _account(self, seconds: float) -> None:
        for name, workload in self._scheduler.workloads.items():
            reserved = workload.reserved_tokens
            self._books.reserved[name] += reserved * seconds
            self._books.peak[name] = max(self._books.peak[name], reserved)
            self._books.waiting[name] += len(workload.waiting) * seconds
        used = self._capacity.kv_blocks - self._scheduler.free_blocks
        self._books.kv += used / self._capacity.kv_blocks * seconds

    def _arrive(self, at: float, number: int, name: str) -> None:
        one = self._served[name]
        request = Request(
            request_id=f"{name}-{number}",
            workload=name,
            tenant="anonymous",
            prompt_tokens=one.traffic.prompt,
            max_new_tokens=one.traffic.output,
            arrival=at,
        )
        self._requests[request.request_id] = request
        self._scheduler.add(request)
        if one.traffic.per_second:
            self._send_after(self._random.expovariate(one.traffic.per_second), one)

    def _send_after(self, seconds: float, one: Served) -> None:
        self._sent += 1
        heapq.heappush(self._arrivals, (self.now + seconds, self._sent, one.name))

    def _finish(self, request: Request) -> None:
        one = self._served[request.workload]
        first = self._first.pop(request.request_id)
        took = {
            "TTFT": first - request.arrival,
            "TPOT": (self.now - first) / (request.generated - 1),
        }
        self._books.finished[one.name] += 1
        for objective in one.objectives:
            met = took[objective.metric] * 1000 <= objective.threshold_milliseconds
            self._books.met[one.name, objective.label, met] += 1
        if one.traffic.clients:
            self._send_after(0.0, one)

    def _observation(self, window: Window, blocked: dict[str, Counter[Blocked]]) -> Observation:
        return Observation(
            window=window,
            replicas=1,
            kv_usage_percent=100 * self._books.kv / window.seconds,
            workloads=tuple(self._samples(window, blocked)),
        )

    def _samples(
        self, window: Window, blocked: dict[str, Counter[Blocked]]
    ) -> Iterator[WorkloadSample]:
        books = self._books
        for name, one in self._served.items():
            now = self._scheduler.workloads[name].blocked
            yield WorkloadSample(
                name=name,
                budget=self.budgets[name],
                objectives=tuple(
                    ObjectiveCount(
                        objective,
                        met=books.met[name, objective.label, True],
                        missed=books.met[name, objective.label, False],
                    )
                    for objective in one.objectives
                ),
                completed=books.finished[name],
                reserved_mean=books.reserved[name] / window.seconds,
                reserved_peak=books.peak[name],
                waiting=books.waiting[name] / window.seconds,
                blocked={str(reason): now[reason] - blocked[name][reason] for reason in now},
            )
