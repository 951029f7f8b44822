# SPDX-License-Identifier: Apache-2.0
"""The engine under test: whatever of the server's code may change is used here alone.

It loads a runner, serves requests through a real `Engine` thread, and keeps with every token the
moment at which it came out. It measures nothing itself.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from threading import Condition
from types import TracebackType
from typing import Any

from headway_bench.engine.requests import BenchRequest
from headway_server.engine.engine import Engine, EngineConfig
from headway_server.engine.messages import Finish, Sampling, Submission, TokenOutput
from headway_server.model_folder import ModelFolder
from headway_server.runner.protocol import Runner
from headway_server.scheduler import Knobs, Plan, Scheduler, Settings, WorkloadPolicy

STOP_SECONDS = 300.0
DEFAULT_WORKLOAD = "bench"


class BenchFailed(Exception):
    """A measurement cannot be made; the message says why and what to do."""


def load_runner(
    folder: ModelFolder,
    device: str,
    dtype: str,
    quantization: str,
    kv_tokens: int,
    say: Callable[[str], None],
) -> Runner:
    """`quantization` None or Int8. Raises headway_server.load_error.ModelLoadError."""
    from headway_server.runner.torch_runner import load_torch_runner

    return load_torch_runner(
        folder,
        device=device,
        dtype=dtype,
        quantization=quantization,
        kv_capacity_tokens=kv_tokens,
        gpu_memory_utilization_percent=90,
        progress=say,
    )


def runner_dtype(folder: ModelFolder, device: str, dtype: str) -> str:
    """What `auto` comes to on this machine, as torch names it."""
    from headway_server.runner.placement import choose_placement

    return choose_placement(device, dtype, folder.config).dtype_name


def matmul_limit(runner: Runner) -> Callable[[int], float] | None:
    """The runner's own matrix products and nothing else, rows to seconds, if it can run them."""
    limit: Callable[[int], float] | None = getattr(runner, "matmul_limit", None)
    return limit


def policy(
    runner: Runner,
    name: str = DEFAULT_WORKLOAD,
    priority: int = 0,
    prefill_tokens: int | None = None,
) -> WorkloadPolicy:
    """The whole cache, and an admission gate that is always open."""
    knobs = Knobs(
        max_batch_total_tokens=runner.kv_capacity_tokens,
        max_batch_prefill_tokens=prefill_tokens or runner.max_step_tokens,
        waiting_served_ratio_percent=0,
    )
    return WorkloadPolicy(name, knobs, priority)


def book(scheduler: Scheduler, plan: Plan) -> list[str]:
    """The scheduler's half of carrying a plan out; who left with it."""
    scheduler.launched(plan)
    return scheduler.settle(plan, ())


@dataclass(slots=True)
class Answer:
    """`times` has one moment a token."""

    submitted: float
    tokens: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    cached_tokens: int = 0
    finish: Finish | None = None
    error: str | None = None

    @property
    def ttft(self) -> float:
        return self.times[0] - self.submitted


class EngineUnderTest:
    """An engine for the length of a `with`. `steps` has the moment and the rows of each output."""

    def __init__(self, runner: Runner, policies: Iterable[WorkloadPolicy] = ()) -> None:
        settings = Settings(tuple(policies) or (policy(runner),))
        self._engine = Engine(runner, EngineConfig(settings), self._emit, time.perf_counter)
        self._answers: dict[str, Answer] = {}
        self._changed = Condition()
        self._numbers = count()
        self.steps: list[tuple[float, int]] = []

    def __enter__(self) -> "EngineUnderTest":
        self._engine.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._engine.stop(STOP_SECONDS)

    def submit(self, request: BenchRequest, workload: str = DEFAULT_WORKLOAD) -> Answer:
        request_id = f"bench-{next(self._numbers)}"
        answer = Answer(time.perf_counter())
        with self._changed:
            self._answers[request_id] = answer
        self._engine.submit(
            Submission(
                request_id=request_id,
                workload=workload,
                tenant="bench",
                prompt=request.prompt,
                max_new_tokens=request.output_tokens,
                sampling=Sampling(seed=0),
                stop_token_ids=frozenset(),
                arrival=answer.submitted,
            )
        )
        return answer

    def wait(self, answers: Iterable[Answer]) -> None:
        """Until all of them are complete. Raises BenchFailed when one does not get there."""
        waited_for = list(answers)
        with self._changed:
            self._changed.wait_for(
                lambda: self._engine.failed or all(answer.finish for answer in waited_for)
            )
        for answer in waited_for:
            if answer.finish is not Finish.LENGTH:
                why = answer.error or self._engine.failed or answer.finish
                raise BenchFailed(f"the engine did not finish a request: {why}")

    def serve(self, requests: Iterable[BenchRequest]) -> list[Answer]:
        """All of them at once, to their ends."""
        answers = [self.submit(request) for request in requests]
        self.wait(answers)
        return answers

    def _emit(self, outputs: list[TokenOutput]) -> None:
        now = time.perf_counter()
        with self._changed:
            self.steps.append((now, sum(bool(output.token_ids) for output in outputs)))
            for output in outputs:
                self._note(self._answers[output.request_id], output, now)
            self._changed.notify_all()

    def _note(self, answer: Answer, output: TokenOutput, now: float) -> None:
        answer.tokens += output.token_ids
        answer.times += [now] * len(output.token_ids)
        answer.cached_tokens = output.cached_tokens or answer.cached_tokens
        answer.error = output.error
        answer.finish = output.finish


def settings_of(runner: Runner) -> dict[str, Any]:
    """What of the runner belongs into a report, and what it says of itself."""
    return {
        "kvCapacityTokens": runner.kv_capacity_tokens,
        "blockSize": runner.block_size,
        "maxStepTokens": runner.max_step_tokens,
        "runsAhead": runner.runs_ahead,
        **getattr(runner, "settings", {}),
    }
