# SPDX-License-Identifier: Apache-2.0
"""An engine core on a simulated runner and a clock that only the runner's steps move."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest

from headway_server.engine.core import EngineCore
from headway_server.engine.inbox import Cancel, Inbox
from headway_server.engine.messages import Sampling, Submission, TokenOutput
from headway_server.runner.protocol import Row, Step
from headway_server.runner.simulated import SimulatedRunner
from headway_server.scheduler import Knobs, Settings, WorkloadPolicy

Hook = Callable[[Sequence[Row]], None]


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0
        self.calls = 0

    def __call__(self) -> float:
        self.calls += 1
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class HookedRunner(SimulatedRunner):
    """Calls `during_step` within each step, which may raise, and keeps the batches."""

    during_step: Hook | None = None

    def launch(self, batch: Sequence[Row]) -> Step:
        if self.during_step is not None:
            self.during_step(batch)
        return super().launch(batch)


def make_settings(revision: str = "r1", /, **values: Any) -> Settings:
    knobs = Knobs(values.pop("budget", 400), 8, waiting_served_ratio_percent=0)
    return Settings((WorkloadPolicy("chat", knobs, **values),), revision)


class Bench:
    def __init__(self, settings: Settings, kv_tokens: int) -> None:
        self.clock = FakeClock()
        self.runner = HookedRunner(kv_tokens, vocab_size=50, block_size=4, sleep=self.clock.advance)
        self.inbox = Inbox()
        self.core = EngineCore(self.runner, settings, self.inbox, self.clock, draw_seed=lambda: 7)
        self.outputs: dict[str, list[TokenOutput]] = defaultdict(list)
        self._ids = count()

    def submit(self, prompt: int | tuple[int, ...] = 5, output: int = 3, **values: Any) -> str:
        request_id = f"r{next(self._ids)}"
        tokens = tuple(range(prompt)) if isinstance(prompt, int) else prompt
        defaults: dict[str, Any] = {
            "workload": "chat",
            "tenant": "t",
            "stop_token_ids": frozenset(),
        }
        defaults["sampling"] = Sampling()
        submission = Submission(
            request_id=request_id,
            prompt=tokens,
            max_new_tokens=output,
            arrival=self.clock.now,
            **(defaults | values),
        )
        self.inbox.submit(submission, self.clock.now)
        return request_id

    def cancel(self, request_id: str) -> None:
        self.inbox.tell(Cancel(request_id))

    def turn(self) -> None:
        outputs = self.core.turn()
        for output in outputs:
            self.outputs[output.request_id].append(output)
        self.inbox.settle(sum(output.finish is not None for output in outputs))

    def turns(self, number: int) -> None:
        for _ in range(number):
            self.turn()

    def run_to_the_end(self, limit: int = 1000) -> None:
        while self.inbox.open_requests:
            self.turn()
            limit -= 1
            assert limit > 0, "requests stay open"

    def tokens(self, request_id: str) -> list[int]:
        return [token for output in self.outputs[request_id] for token in output.token_ids]

    def last(self, request_id: str) -> TokenOutput:
        assert [bool(output.finish) for output in self.outputs[request_id]].count(True) == 1
        return self.outputs[request_id][-1]


@pytest.fixture
def settings() -> Callable[..., Settings]:
    return make_settings


@pytest.fixture
def bench() -> Callable[..., Bench]:
    def build(settings: Settings | None = None, kv_tokens: int = 400) -> Bench:
        return Bench(settings or make_settings(), kv_tokens)

    return build
