# SPDX-License-Identifier: Apache-2.0
"""Whoever serves the bench's requests: the engine under test, and what it is held against.

A contender serves all requests to their full length, greedily, and is timed from the first being
handed over to the last being done. Loading, warming up and tidying up are never in the time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from headway_bench.engine.requests import BenchRequest
from headway_bench.engine.under_test import BenchFailed, EngineUnderTest, settings_of
from headway_server.runner.protocol import Runner


@dataclass(frozen=True, slots=True)
class Served:
    """`answers` has the tokens of each request, in the order of the requests."""

    seconds: float
    answers: list[list[int]] = field(repr=False)

    @property
    def tokens_per_second(self) -> float:
        return sum(len(answer) for answer in self.answers) / self.seconds


class Contender(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> dict[str, Any]:
        """What it was set to, for the report."""
        ...

    def serve(self, requests: Sequence[BenchRequest]) -> Served: ...


class HeadwayEngine:
    def __init__(self, runner: Runner, name: str = "headway") -> None:
        self.name = name
        self._runner = runner
        self.settings = settings_of(runner)

    def serve(self, requests: Sequence[BenchRequest]) -> Served:
        """A new engine each time, so that no prompt is found in a cache."""
        with EngineUnderTest(self._runner) as engine:
            answers = engine.serve(requests)
        seconds = max(answer.times[-1] for answer in answers) - answers[0].submitted
        return Served(seconds, [answer.tokens for answer in answers])


def check_lengths(name: str, requests: Sequence[BenchRequest], served: Served) -> Served:
    """Raises BenchFailed unless every request got all of its tokens: else no ratio is fair."""
    for request, answer in zip(requests, served.answers, strict=True):
        if len(answer) != request.output_tokens:
            raise BenchFailed(
                f"{name} made {len(answer)} of {request.output_tokens} tokens of a request"
            )
    return served
