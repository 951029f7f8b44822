# SPDX-License-Identifier: Apache-2.0
"""What the whole engine spends on a step beside the model: plan, rows, tokens, blocks, outputs.

A real engine thread over a runner that computes nothing, by the CPU time of that thread. Nobody
takes the outputs: what becomes of a token behind the engine is not the engine's.
"""

import random
import time
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from threading import Event

from headway_bench.engine.requests import log_uniform
from headway_bench.engine.sizes import Sizes
from headway_bench.engine.under_test import STOP_SECONDS, BenchFailed
from headway_server.engine.engine import Engine, EngineConfig
from headway_server.engine.messages import Sampling, Submission
from headway_server.runner.protocol import Finished, Row, Step, StepResult
from headway_server.scheduler import Capacity, Settings

VOCABULARY = 32_000
WAIT_SECONDS = 600.0


class NoModel:
    """Every token is 0. `launches` has the thread's CPU time and the rows of each step."""

    runs_ahead = False
    vocab_size = VOCABULARY

    def __init__(self, capacity: Capacity, steps: int) -> None:
        self.kv_capacity_tokens = capacity.kv_tokens
        self.block_size = capacity.block_size
        self.max_step_tokens = capacity.step_tokens
        self.launches: list[tuple[float, int]] = []
        self.done = Event()
        self._steps = steps

    def launch(self, batch: Sequence[Row]) -> Step:
        self.launches.append((time.thread_time(), len(batch)))
        if len(self.launches) == self._steps:
            self.done.set()
        return Finished(StepResult([0 if row.samples else None for row in batch]))


def engine_step_milliseconds(
    sizes: Sizes,
    capacity: Capacity,
    settings: Settings,
    waiting: int,
    lengths: tuple[tuple[int, int], tuple[int, int]],
    seed: int,
) -> float:
    """Mean over the steps that had all places taken. `lengths`: spans of prompts and answers."""
    steps = sizes.scheduler_steps
    runner = NoModel(capacity, steps)
    engine = Engine(runner, EngineConfig(settings), lambda outputs: None, time.monotonic)
    for submission in submissions(sizes, sizes.running + waiting, lengths, seed):
        engine.submit(submission)
    engine.start()
    runner.done.wait(WAIT_SECONDS)
    engine.stop(STOP_SECONDS)
    gaps = [
        after - before
        for (before, had), (after, has) in pairwise(runner.launches[:steps])
        if had >= sizes.running and has >= sizes.running
    ]
    if not gaps:
        raise BenchFailed(
            f"the engine never had {sizes.running} requests running: {engine.failed or 'no error'}"
        )
    return fmean(gaps) * 1000


def submissions(
    sizes: Sizes, count: int, lengths: tuple[tuple[int, int], tuple[int, int]], seed: int
) -> list[Submission]:
    chance = random.Random(seed)  # noqa: S311 - not a secret
    prompts, outputs = (log_uniform(span, 64) for span in lengths)
    return [
        Submission(
            request_id=f"request-{number}",
            workload=f"workload-{number % sizes.workloads}",
            tenant=f"tenant-{chance.randrange(sizes.tenants)}",
            prompt=tuple(chance.choices(range(VOCABULARY), k=chance.choice(prompts))),
            max_new_tokens=chance.choice(outputs),
            sampling=Sampling(seed=0),
            stop_token_ids=frozenset(),
            arrival=0.0,
        )
        for number in range(count)
    ]
