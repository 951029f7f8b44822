# SPDX-License-Identifier: Apache-2.0
"""An engine core on a paged runner and a clock that only the runner's steps move."""

from collections import defaultdict
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from tests.server.engine.paged_runner import PagedRunner

from headway_server.engine.core import EngineCore
from headway_server.engine.inbox import Cancel, Inbox
from headway_server.engine.messages import Sampling, Submission, TokenOutput
from headway_server.scheduler import Formation, Knobs, Settings, WorkloadPolicy


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0
        self.calls = 0

    def __call__(self) -> float:
        self.calls += 1
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def make_settings(revision: str = "r1", /, **values: Any) -> Settings:
    knobs = Knobs(
        values.pop("budget", 400), values.pop("prefill", 8), waiting_served_ratio_percent=0
    )
    formation = values.pop("formation", Formation())
    return Settings((WorkloadPolicy("chat", knobs, **values),), revision, formation=formation)


class Bench:
    def __init__(
        self, settings: Settings, kv_tokens: int, runs_ahead: bool, lengths: Any, prefix: bool
    ) -> None:
        self.clock = FakeClock()
        self.runner = PagedRunner(kv_tokens, self.clock.advance, runs_ahead)
        self.inbox = Inbox()
        self.core = EngineCore(
            self.runner,
            settings,
            self.inbox,
            self.clock,
            draw_seed=lambda: 7,
            prefix_secret=b"secret" if prefix else None,
            lengths=lengths,
        )
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

    def turn_if_in_flight(self) -> None:
        """Lets the step that was launched ahead end, if there is one."""
        self.inbox.tell(Cancel("nobody"))
        self.turn()

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
    def build(
        settings: Settings | None = None,
        kv_tokens: int = 400,
        runs_ahead: bool = False,
        lengths: Any = None,
        prefix: bool = True,
    ) -> Bench:
        return Bench(settings or make_settings(), kv_tokens, runs_ahead, lengths, prefix)

    return build
