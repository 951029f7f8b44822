# SPDX-License-Identifier: Apache-2.0
"""The scheduler under each batching policy: prompts, budgets and changes while it runs."""

import random
from itertools import permutations
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings

from headway_server.scheduler import (
    Capacity,
    Expectation,
    Formation,
    Knobs,
    Request,
    Scheduler,
    Settings,
    WorkloadPolicy,
)

POLICIES = ("Continuous", "Static", "Dynamic", "MultiBin")
CAPACITY = Capacity(kv_blocks=4000, block_size=16, step_tokens=2048)
SLOTS = 8


class Known:
    """Every answer is as long as it may be, and that is known."""

    def expect(self, request: Request, generated: int = 0) -> Expectation:
        return Expectation(request.max_new_tokens, request.max_new_tokens)

    def learn(self, request: Request, output_tokens: int) -> None: ...


def settings(policy: Any, **values: Any) -> Settings:
    knobs = Knobs(100_000, 2048, waiting_served_ratio_percent=0)
    chat = WorkloadPolicy("chat", knobs, max_running=SLOTS)
    return Settings((chat,), formation=Formation(policy, **({"max_batch_size": SLOTS} | values)))


class Engine:
    """Plays the engine's part; a step takes 10 ms, an idle engine sleeps until something is due."""

    def __init__(
        self, settings: Settings, capacity: Capacity = CAPACITY, predictor: Any = None
    ) -> None:
        self.scheduler = Scheduler(capacity, settings, predictor=predictor or Known())
        self.now = 0.0
        self.steps = 0
        self.admitted: list[str] = []
        self.left_at: dict[str, int] = {}
        self.most_running = 0
        self.preempted = 0

    def add(self, name: str, output: int, prompt: int = 20) -> None:
        self.scheduler.add(Request(name, "chat", "t", prompt, output, self.now))

    def step(self) -> None:
        plan = self.scheduler.plan(self.now)
        self.preempted += len(plan.preempted)
        self.admitted += plan.admitted
        self.most_running = max(self.most_running, len(self.running))
        if plan:
            self.scheduler.launched(plan)
            self.steps += 1
            self.left_at |= dict.fromkeys(self.scheduler.settle(plan), self.steps)
            self.now += 0.01
        else:
            due = self.scheduler.due()
            assert due is not None
            assert due > self.now
            self.now = due

    def run(self) -> None:
        while not self.scheduler.is_empty:
            self.step()

    @property
    def running(self) -> set[str]:
        return set(self.scheduler.workloads["chat"].running)


def burst(policy: Any, seed: int) -> tuple[int, float]:
    chance = random.Random(seed)
    engine = Engine(settings(policy))
    for index in range(64):
        engine.add(f"{index}", round(8 * 20 ** chance.random()), chance.randint(10, 200))
    engine.run()
    assert len(engine.admitted) == len(engine.left_at) == 64
    assert engine.most_running <= SLOTS
    return engine.steps, sum(engine.left_at.values()) / 64


def test_the_order_of_the_policies_over_bursts() -> None:
    """64 requests a burst, 8 slots, 8 to 160 output tokens whose number is known beforehand."""
    results = {policy: [burst(policy, seed) for seed in range(5)] for policy in POLICIES}
    steps = {policy: sum(each for each, _ in results[policy]) for policy in POLICIES}
    latency = {policy: sum(each for _, each in results[policy]) for policy in POLICIES}
    assert steps["Static"] > steps["MultiBin"] > steps["Continuous"]
    assert latency["MultiBin"] < latency["Static"]


@pytest.mark.parametrize(("old", "new"), list(permutations(POLICIES, 2)))
def test_another_policy_takes_over_at_an_empty_batch(old: str, new: str) -> None:
    engine = Engine(settings(old, max_delay_seconds=0.0))
    for index in range(12):
        engine.add(f"{index}", 5 + index)
    engine.step()
    before = engine.running
    engine.scheduler.apply(settings(new, max_delay_seconds=0.0, max_batch_size=3))
    while engine.running & before:
        assert engine.running <= before
        engine.step()
    engine.run()
    assert sorted(engine.admitted, key=int) == [f"{index}" for index in range(12)]


def test_continuous_batching_heeds_no_values_of_the_other_policies() -> None:
    engine = Engine(settings("Continuous"))
    engine.add("first", 50)
    engine.step()
    engine.scheduler.apply(settings("Continuous", max_batch_size=2, bins=3, max_delay_seconds=9.0))
    engine.add("second", 50)
    engine.step()
    assert engine.running == {"first", "second"}


def test_a_batch_is_as_large_as_the_setting_even_where_more_would_fit() -> None:
    for policy in ("Static", "Dynamic", "MultiBin"):
        engine = Engine(settings(policy, max_batch_size=3, max_delay_seconds=0.0))
        for index in range(10):
            engine.add(f"{index}", 5 + index)
        engine.run()
        assert engine.most_running == 3


class Short:
    """Expects two more tokens, always: most answers outgrow what was reserved."""

    def expect(self, request: Request, generated: int = 0) -> Expectation:
        tokens = min(request.max_new_tokens, generated + 2)
        return Expectation(tokens, tokens)

    def learn(self, request: Request, output_tokens: int) -> None: ...


formations: Any = st.builds(
    settings,
    st.sampled_from(POLICIES),
    max_batch_size=st.integers(1, 6),
    max_delay_seconds=st.sampled_from((0.0, 0.05, 3.0)),
    bins=st.integers(1, 4),
    length_aware=st.booleans(),
    output_reservation=st.sampled_from(("Expected", "Full")),
)
actions: Any = st.lists(
    st.one_of(
        st.tuples(st.integers(1, 12), st.integers(1, 12)),  # a request: prompt, output
        formations,
        st.sampled_from(("step", "cancel")),
    ),
    min_size=10,
    max_size=80,
)


@given(start=formations, actions=actions)
@hypothesis_settings(max_examples=100, deadline=None)
def test_under_whatever_policy_and_with_preemptions_all_who_stay_are_served(
    start: Settings, actions: list[Any]
) -> None:
    capacity = Capacity(kv_blocks=8, block_size=4, step_tokens=16)
    engine = Engine(start, capacity, Short())
    staying: list[str] = []
    for index, action in enumerate(actions):
        match action:
            case Settings():
                assert engine.scheduler.apply(action) == []
            case (prompt, output):
                engine.add(f"{index}", output, prompt)
                staying.append(f"{index}")
            case "cancel" if staying:
                cancelled = staying.pop(index % len(staying))
                assert engine.scheduler.remove(cancelled) or cancelled in engine.left_at
            case "step" if not engine.scheduler.is_empty:
                engine.step()
    engine.run()
    assert set(staying) <= engine.left_at.keys()
    assert engine.scheduler.free_blocks == capacity.kv_blocks
    assert len(engine.admitted) <= len(set(engine.admitted)) + engine.preempted
