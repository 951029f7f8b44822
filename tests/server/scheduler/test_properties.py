# SPDX-License-Identifier: Apache-2.0
"""Whatever happens in whatever order: no budget is exceeded, nobody is evicted, all finish."""

from collections import Counter
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headway_server.scheduler import (
    Capacity,
    Knobs,
    Plan,
    Refused,
    Request,
    Scheduler,
    Settings,
    WorkloadPolicy,
)

CAPACITY = Capacity(kv_blocks=12, block_size=4, step_tokens=8)
LARGEST = 24
NAMES = ("a", "b", "c")

knobs = st.builds(
    Knobs,
    max_batch_total_tokens=st.integers(LARGEST, 60),
    max_batch_prefill_tokens=st.integers(1, 12),
    waiting_served_ratio_percent=st.sampled_from((0, 30, 100, 1000)),
    max_waiting_tokens=st.integers(0, 8),
)


def policies(name: str) -> st.SearchStrategy[WorkloadPolicy]:
    return st.builds(
        WorkloadPolicy,
        name=st.just(name),
        knobs=knobs,
        priority=st.integers(-2, 2),
        weight=st.integers(1, 3),
        max_running=st.none() | st.integers(1, 3),
        max_running_per_tenant=st.none() | st.integers(1, 2),
    )


any_settings = st.builds(
    Settings,
    workloads=st.tuples(*(policies(name) for name in NAMES)),
    starvation_seconds=st.sampled_from((0.0, 2.0, 10.0)),
)


class SchedulerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        knobs = Knobs(LARGEST, 4)
        policies = tuple(WorkloadPolicy(name, knobs) for name in NAMES)
        self.scheduler = Scheduler(CAPACITY, Settings(policies))
        self.now = 0.0
        self.open: dict[str, Request] = {}
        self.in_flight: Plan | None = None

    @rule(
        workload=st.sampled_from(NAMES),
        tenant=st.sampled_from("xy"),
        prompt=st.integers(1, LARGEST - 1),
        data=st.data(),
    )
    def add(self, workload: str, tenant: str, prompt: int, data: st.DataObject) -> None:
        output = data.draw(st.integers(1, LARGEST - prompt))
        request_id = f"{self.now}-{len(self.open)}-{data.draw(st.uuids())}"
        request = Request(request_id, workload, tenant, prompt, output, self.now)
        self.scheduler.add(request)
        self.open[request.request_id] = request

    @rule(prompt=st.integers(LARGEST, 100))
    def add_too_large(self, prompt: int) -> None:
        budget = self.scheduler.workloads["a"].policy.knobs.max_batch_total_tokens
        request = Request("large", "a", "x", prompt, max(1, budget), self.now)
        with pytest.raises(Refused):
            self.scheduler.add(request)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.open)))
        assert self.scheduler.remove(request_id) is self.open.pop(request_id)

    @precondition(lambda self: self.in_flight is None)
    @rule(new=any_settings)
    def apply(self, new: Settings) -> None:
        before = self.running()
        assert self.scheduler.apply(new) == []
        assert self.running() == before

    @precondition(lambda self: self.in_flight is None)
    @rule()
    def plan(self) -> None:
        before = self.running()
        plan = self.scheduler.plan(self.now)
        assert bool(plan) == bool(self.open)
        assert self.running() == before | set(plan.admitted)
        self.check_budgets(plan)
        self.in_flight = plan

    @precondition(lambda self: self.in_flight is not None)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        assert self.in_flight is not None
        rows = sorted(self.in_flight.request_ids)
        stopped = data.draw(st.sets(st.sampled_from(rows), max_size=1)) if rows else set()
        for request_id in self.scheduler.commit(self.in_flight, stopped):
            request = self.open.pop(request_id)
            assert request_id in stopped or request.generated == request.max_new_tokens
        self.in_flight = None
        self.now += 1

    def check_budgets(self, plan: Plan) -> None:
        assert len(plan.decode) + plan.prompt_tokens <= CAPACITY.step_tokens
        assert len(self.running()) <= CAPACITY.step_tokens
        assert len(set(plan.request_ids)) == len(plan.request_ids)
        prompt_tokens: Counter[str] = Counter()
        for chunk in plan.chunks:
            request = self.open[chunk.request_id]
            assert chunk.tokens > 0
            assert chunk.start == request.computed
            assert chunk.last == (chunk.tokens == request.prompt_left)
            prompt_tokens[request.workload] += chunk.tokens
        admitted = {self.open[request_id].workload for request_id in plan.admitted}
        for name, workload in self.scheduler.workloads.items():
            policy = workload.policy
            assert prompt_tokens[name] <= policy.knobs.max_batch_prefill_tokens
            if name in admitted:
                assert workload.reserved_tokens <= policy.knobs.max_batch_total_tokens
                assert len(workload.running) <= (policy.max_running or len(workload.running))

    @invariant()
    def books_are_right(self) -> None:
        blocks = 0
        for workload in self.scheduler.workloads.values():
            reserves = [request.reserve for request in workload.running.values()]
            assert workload.reserved_tokens == sum(reserves)
            blocks += sum(CAPACITY.blocks_for(reserve) for reserve in reserves)
        assert self.scheduler.free_blocks == CAPACITY.kv_blocks - blocks >= 0

    def running(self) -> set[str]:
        return {name for w in self.scheduler.workloads.values() for name in w.running}

    def teardown(self) -> None:
        """With no more arrivals everything finishes, each step doing something."""
        if self.in_flight is not None:
            self.scheduler.commit(self.in_flight)
        tokens = sum(r.prompt_left + r.max_new_tokens for r in self.open.values())
        for _ in range(tokens):
            self.scheduler.commit(self.scheduler.plan(self.now))
            self.now += 1
        assert self.scheduler.is_empty
        assert self.scheduler.free_blocks == CAPACITY.kv_blocks


SchedulerMachine.TestCase.settings = hypothesis_settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
TestScheduler: Callable[[], object] = SchedulerMachine.TestCase
