# SPDX-License-Identifier: Apache-2.0
"""What planning and booking a step costs, by the CPU time of one thread and without any model.

All places are taken and stay so: whoever leaves is replaced from the queue, and the queue from
outside. CPU time, since what other processes do to the wall clock is not the scheduler's.
"""

import random
import time
from collections.abc import Sequence
from itertools import count
from statistics import fmean

from headway_bench.engine.engine_cost import engine_step_milliseconds
from headway_bench.engine.figures import SCHEDULER_MS, Measured
from headway_bench.engine.repetitions import Say, Series, rounded
from headway_bench.engine.requests import log_uniform
from headway_bench.engine.sizes import Sizes
from headway_bench.engine.under_test import book
from headway_server.scheduler import (
    Capacity,
    Knobs,
    Request,
    Scheduler,
    Settings,
    WorkloadPolicy,
)

BLOCK_SIZE = 16
STEP_TOKENS = 4096
STEP_SECONDS = 0.03
PROMPTS = (16, 384)
OUTPUTS = (8, 192)


def measure_scheduling(sizes: Sizes, seed: int, repeats: int, say: Say) -> Measured:
    """Milliseconds a step for each length of queue, interleaved; the named one is the second."""
    figures: dict[int, list[float]] = {waiting: [] for waiting in sizes.waiting}
    engine: list[float] = []
    named, longest = sizes.waiting[1], sizes.waiting[-1]
    for _ in range(repeats):
        for waiting in sizes.waiting:
            milliseconds = step_milliseconds(sizes, waiting, seed)
            figures[waiting].append(milliseconds)
            say(f"scheduler: {milliseconds:.3f} ms a step with {waiting} waiting")
        engine.append(
            engine_step_milliseconds(
                sizes, capacity(sizes), settings(sizes), named, (PROMPTS, OUTPUTS), seed
            )
        )
        say(f"engine without a model: {engine[-1]:.3f} ms a step with {named} waiting")
    series = {waiting: Series(tuple(v), higher_is_better=False) for waiting, v in figures.items()}
    details = {
        "running": sizes.running,
        "workloads": sizes.workloads,
        "tenants": sizes.tenants,
        "steps": sizes.scheduler_steps,
        "unit": "ms of CPU time",
        "wholeEngine": Series(tuple(engine), higher_is_better=False).as_json(),
        "byWaiting": {str(waiting): values.as_json() for waiting, values in series.items()},
        "growth": {
            "from": named,
            "to": longest,
            "factor": rounded(series[longest].median / series[named].median),
        },
    }
    return Measured(SCHEDULER_MS, rounded(series[named].median), details)


def step_milliseconds(sizes: Sizes, waiting: int, seed: int) -> float:
    """Mean of the steps, after as many as it takes to fill all places."""
    arrivals = Arrivals(sizes, seed)
    scheduler = Scheduler(capacity(sizes), settings(sizes))
    for _ in range(sizes.running + waiting):
        scheduler.add(arrivals.next(0.0))
    moments = (step * STEP_SECONDS for step in count(1))
    while sum(len(w.running) for w in scheduler.workloads.values()) < sizes.running:
        carry_out(scheduler, arrivals, next(moments))
    seconds = [carry_out(scheduler, arrivals, next(moments)) for _ in range(sizes.scheduler_steps)]
    return fmean(seconds) * 1000


def carry_out(scheduler: Scheduler, arrivals: "Arrivals", now: float) -> float:
    """One step, and a new request for each that left; only the scheduler's work is timed."""
    started = time.thread_time()
    scheduler.remove_past_deadline(now)
    scheduler.remove_timed_out(now)
    left = book(scheduler, scheduler.plan(now))
    seconds = time.thread_time() - started
    fresh = [arrivals.next(now) for _ in left]
    started = time.thread_time()
    for request in fresh:
        scheduler.add(request)
    return seconds + time.thread_time() - started


def settings(sizes: Sizes) -> Settings:
    """Equal shares of the places, so that every workload's queue has a head that must wait."""
    tokens = (PROMPTS[1] + OUTPUTS[1]) * sizes.running
    knobs = Knobs(tokens, STEP_TOKENS, waiting_served_ratio_percent=0)
    places = sizes.running // sizes.workloads
    return Settings(
        tuple(
            WorkloadPolicy(
                f"workload-{n}", knobs, priority=n % 3, weight=1 + n % 4, max_running=places
            )
            for n in range(sizes.workloads)
        )
    )


def capacity(sizes: Sizes) -> Capacity:
    tokens = (PROMPTS[1] + OUTPUTS[1] + BLOCK_SIZE) * sizes.running
    return Capacity(tokens // BLOCK_SIZE, BLOCK_SIZE, STEP_TOKENS)


class Arrivals:
    """Requests without end, spread evenly over the workloads and by chance over the tenants."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - not a secret
        self._sizes = sizes
        self._numbers = count()
        self._prompts = log_uniform(PROMPTS, 64)
        self._outputs = log_uniform(OUTPUTS, 64)

    def next(self, now: float) -> Request:
        number = next(self._numbers)
        return Request(
            request_id=f"request-{number}",
            workload=f"workload-{number % self._sizes.workloads}",
            tenant=f"tenant-{self._chance.randrange(self._sizes.tenants)}",
            prompt_tokens=self._pick(self._prompts),
            max_new_tokens=self._pick(self._outputs),
            arrival=now,
        )

    def _pick(self, lengths: Sequence[int]) -> int:
        return self._chance.choice(lengths)
