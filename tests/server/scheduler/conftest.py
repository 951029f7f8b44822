# SPDX-License-Identifier: Apache-2.0
"""Short ways to say what a scheduler is given, and a driver that plays the engine's part."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from headway_server.scheduler import (
    Capacity,
    FormerFor,
    Knobs,
    LengthPredictor,
    Plan,
    Request,
    Scheduler,
    Settings,
    WorkloadPolicy,
)

Bench = Callable[..., "Driver"]
MakePolicy = Callable[..., WorkloadPolicy]


def make_policy(name: str = "chat", **values: Any) -> WorkloadPolicy:
    knobs = {"max_batch_total_tokens": 1000, "max_batch_prefill_tokens": 100}
    knobs |= {"waiting_served_ratio_percent": 0, "max_waiting_tokens": 20}
    given = {key: values.pop(key) for key in list(values) if key in knobs}
    return WorkloadPolicy(name, Knobs(**(knobs | given)), **values)


class Driver:
    """Steps a scheduler; one step is one second."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.now = 0.0
        self._ids = count()

    def add(self, prompt: int, output: int, workload: str = "chat", **values: Any) -> str:
        request_id = f"{workload}-{next(self._ids)}"
        values = {"tenant": "t", "arrival": self.now, **values}
        self.scheduler.add(
            Request(request_id, workload, prompt_tokens=prompt, max_new_tokens=output, **values)
        )
        return request_id

    def step(self, stopped: tuple[str, ...] = ()) -> Plan:
        plan = self.scheduler.plan(self.now)
        self.scheduler.launched(plan)
        self.scheduler.settle(plan, stopped)
        self.now += 1
        return plan

    def run(self, steps: int) -> list[Plan]:
        return [self.step() for _ in range(steps)]

    def running(self, workload: str = "chat") -> set[str]:
        return set(self.scheduler.workloads[workload].running)


@pytest.fixture
def policy() -> MakePolicy:
    return make_policy


@pytest.fixture
def bench() -> Bench:
    def build(
        *policies: WorkloadPolicy,
        kv_blocks: int = 1000,
        step_tokens: int = 1000,
        predictor: LengthPredictor | None = None,
        former_for: FormerFor | None = None,
        **values: Any,
    ) -> Driver:
        capacity = Capacity(kv_blocks, block_size=10, step_tokens=step_tokens)
        settings = Settings(policies or (make_policy(),), **values)
        scheduler = Scheduler(capacity, settings, predictor=predictor, former_for=former_for)
        return Driver(scheduler)

    return build
