# SPDX-License-Identifier: Apache-2.0
"""Whatever happens in whatever order, one step ahead or not: no budget is exceeded, no block is
lost, nobody loses a token or its place more than twice, and all finish."""

from collections import Counter
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from headway_server.scheduler import (
    Capacity,
    CountedKv,
    Expectation,
    Formation,
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
    formation=st.builds(
        Formation,
        length_aware=st.booleans(),
        output_reservation=st.sampled_from(("Full", "Expected")),
    ),
)


class Arbitrary:
    """Expects an arbitrary part of each answer."""

    def expect(self, request: Request, generated: int = 0) -> Expectation:
        guess = 1 + hash((request.prompt_tokens, request.max_new_tokens, generated)) % 5
        tokens = min(request.max_new_tokens, generated + guess)
        return Expectation(tokens, tokens)

    def learn(self, request: Request, output_tokens: int) -> None:
        assert 1 <= output_tokens <= request.max_new_tokens


class SchedulerMachine(RuleBasedStateMachine):
    """`in_flight`: the plans that were launched and not settled, at most `ahead` + 1."""

    @initialize(ahead=st.integers(0, 1), start=any_settings)
    def begin(self, ahead: int, start: Settings) -> None:
        self.kv = CountedKv(CAPACITY.kv_blocks, CAPACITY.block_size)
        self.scheduler = Scheduler(CAPACITY, start, self.kv, Arbitrary())
        self.ahead = ahead
        self.now = 0.0
        self.open: dict[str, Request] = {}
        self.in_flight: list[Plan] = []
        self.made: Counter[str] = Counter()
        self.number = 0

    @rule(
        workload=st.sampled_from(NAMES),
        tenant=st.sampled_from("xy"),
        prompt=st.integers(1, LARGEST - 1),
        data=st.data(),
    )
    def add(self, workload: str, tenant: str, prompt: int, data: st.DataObject) -> None:
        output = data.draw(st.integers(1, LARGEST - prompt))
        self.number += 1
        request = Request(f"r{self.number}", workload, tenant, prompt, output, self.now)
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

    @precondition(lambda self: self.in_flight)
    @rule()
    def fail_the_oldest_step(self) -> None:
        for request_id in self.in_flight.pop(0).request_ids:
            removed = self.scheduler.remove(request_id)
            assert removed is self.open.pop(request_id, None)

    @rule(new=any_settings)
    def apply(self, new: Settings) -> None:
        before = self.running()
        assert self.scheduler.apply(new) == []
        assert self.running() == before

    @precondition(lambda self: len(self.in_flight) <= self.ahead)
    @rule()
    def plan(self) -> None:
        self.step()

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        rows = sorted(self.in_flight[0].sampling)
        stopped = data.draw(st.sets(st.sampled_from(rows), max_size=1)) if rows else set()
        self.settle_oldest(stopped)
        self.now += 1

    def step(self) -> None:
        before = self.running()
        over = {n: self.over_budget(n) for n in NAMES}
        plan = self.scheduler.plan(self.now)
        if not self.in_flight:
            assert bool(plan) == bool(self.open)
        assert not set(plan.admitted) & set(plan.preempted)
        assert self.running() == (before | set(plan.admitted)) - set(plan.preempted)
        self.check_budgets(plan, over)
        self.scheduler.launched(plan)
        self.in_flight.append(plan)

    def settle_oldest(self, stopped: set[str]) -> None:
        plan = self.in_flight.pop(0)
        self.made.update(plan.sampling)
        stopped &= set(self.open)
        finished = self.scheduler.settle(plan, stopped)
        assert stopped <= set(finished)
        for request_id in finished:
            request = self.open.pop(request_id)
            assert request_id in stopped or self.made[request_id] == request.max_new_tokens

    def check_budgets(self, plan: Plan, over: dict[str, bool]) -> None:
        assert len(plan.decode) + plan.prompt_tokens <= CAPACITY.step_tokens
        assert len(self.running()) <= CAPACITY.step_tokens
        assert len(set(plan.request_ids)) == len(plan.request_ids)
        prompt_tokens: Counter[str] = Counter()
        for request_id in plan.decode:
            request = self.open[request_id]
            assert request.generated <= request.reserved_output
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
            if len(workload.running) > 1:
                assert over[name] or not self.over_budget(name)
            if name in admitted:
                assert len(workload.running) <= (policy.max_running or len(workload.running))

    def over_budget(self, name: str) -> bool:
        workload = self.scheduler.workloads[name]
        return workload.reserved_tokens > workload.policy.knobs.max_batch_total_tokens

    @invariant()
    def books_are_right(self) -> None:
        blocks = 0
        for workload in self.scheduler.workloads.values():
            reserves = [request.reserve for request in workload.running.values()]
            assert workload.reserved_tokens == sum(reserves)
            blocks += sum(CAPACITY.blocks_for(reserve) for reserve in reserves)
        assert self.kv.free_blocks == CAPACITY.kv_blocks - blocks >= 0
        assert all(request.preemptions <= 2 for request in self.open.values())

    def running(self) -> set[str]:
        return {name for w in self.scheduler.workloads.values() for name in w.running}

    def teardown(self) -> None:
        """With no more arrivals everything finishes, each step doing something."""
        if not hasattr(self, "scheduler"):
            return
        tokens = sum(3 * (r.prompt_tokens + r.max_new_tokens) for r in self.open.values())
        while self.open:
            if len(self.in_flight) > self.ahead:
                self.settle_oldest(set())
            self.step()
            if not self.in_flight[-1] or not self.ahead:
                while self.in_flight:
                    self.settle_oldest(set())
            self.now += 1
            tokens -= 1
            assert tokens >= 0
        assert self.scheduler.is_empty
        assert self.kv.free_blocks == CAPACITY.kv_blocks


SchedulerMachine.TestCase.settings = hypothesis_settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
TestScheduler: Callable[[], object] = SchedulerMachine.TestCase
