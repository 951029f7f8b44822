# SPDX-License-Identifier: Apache-2.0
"""One served model: which phase it is in, the requests that are open, the values in force.

Everything here happens on the event loop, except that the engine emits from its own thread. The
routes know this class and nothing of the engine; it knows nothing of HTTP beyond a `Problem`.
"""

import asyncio
import contextlib
import logging
import os
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from headway_api.objectives import Objective
from headway_server.accounting import Account, Timeline
from headway_server.admission import check_room, output_budget, workload_of
from headway_server.engine.engine import Engine, EngineConfig, EngineStopped
from headway_server.engine.messages import Sampling, Submission, TokenMatcher, TokenOutput
from headway_server.engine.predictors import Predictors
from headway_server.engine.state import EngineState
from headway_server.generation import (
    Generation,
    client_left,
    engine_failed,
    outcome_of,
    shutting_down,
)
from headway_server.metrics import NO_WORKLOAD, RequestMetrics
from headway_server.open_requests import OpenRequests
from headway_server.problem import Problem
from headway_server.runner.grammar import Grammar, GrammarRefused
from headway_server.runner.protocol import Runner
from headway_server.settings import Envelope, HotSettings
from headway_server.text_codec import TextCodec

log = logging.getLogger(__name__)

Argument = TypeVar("Argument")
Result = TypeVar("Result")


class Phase(StrEnum):
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class Limits:
    """body_bytes: largest request body. backlog_tokens: kept for a client that reads slowly.
    ping_seconds: silence after which a stream gets a comment. stall_seconds: time without a step,
    with work to do, after which the process counts as sick."""

    body_bytes: int = 8 * 2**20
    backlog_tokens: int = 1024
    ping_seconds: float = 15.0
    stall_seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class LoadedModel:
    runner: Runner
    codec: TextCodec
    envelope: Envelope
    prefix_caching: bool = True


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as the engine needs it, whatever the protocol it came by.

    `max_tokens` None: `default_tokens`, and where that is None too, all that the context leaves.
    """

    workload: str
    tenant: str
    arrival: float
    prompt: tuple[int, ...]
    max_tokens: int | None
    default_tokens: int | None
    sampling: Sampling
    stops: tuple[str, ...]
    ignore_end: bool
    min_tokens: int = 0
    stop_token_ids: frozenset[int] = frozenset()
    matcher: TokenMatcher | None = None
    prompt_group: int = 0
    cache_salt: str = ""


class Service:
    """`clock` is monotonic seconds, the same for the engine."""

    def __init__(
        self,
        served_name: str,
        metrics: RequestMetrics,
        clock: Callable[[], float],
        limits: Limits,
    ) -> None:
        self.served_name = served_name
        self.clock = clock
        self.limits = limits
        self.created = int(time.time())
        self.phase = Phase.LOADING
        self._metrics = metrics
        self._open = OpenRequests(clock)
        self._model: LoadedModel | None = None
        self._engine: Engine | None = None
        self._settings: HotSettings | None = None
        self._announced: HotSettings | None = None
        self._workers = ThreadPoolExecutor(min(4, os.cpu_count() or 1), "headway-text")
        self._grammar_worker = ThreadPoolExecutor(1, "headway-grammar")

    def start(self, model: LoadedModel, settings: HotSettings) -> None:
        """The model is loaded: from here on requests are served."""
        loop = asyncio.get_running_loop()

        def emit(outputs: list[TokenOutput]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has closed: nobody listens
                loop.call_soon_threadsafe(self._open.deliver, outputs)

        self._metrics.prepare(_objectives(settings))
        self._model = model
        self._settings = settings
        config = EngineConfig(
            settings.scheduler,
            prefix_caching=model.prefix_caching,
            lengths=Predictors(settings.scheduler.formation),
        )
        self._engine = Engine(model.runner, config, emit, self.clock)
        self._engine.start()
        if self.phase is Phase.LOADING:
            self.phase = Phase.READY

    def apply(self, settings: HotSettings) -> None:
        """Hands new values to the engine; `settings` follows when it has them in force."""
        if self._engine is not None:
            self._metrics.prepare(_objectives(settings))
            self._announced = settings
            self._engine.apply(settings.scheduler)

    async def drain(self, seconds: float) -> None:
        """Takes no more requests and lets the open ones finish; cuts them off after `seconds`."""
        self.phase = Phase.DRAINING
        try:
            async with asyncio.timeout(seconds):
                await self._open.finished()
        except TimeoutError:
            self.cut_off()

    def cut_off(self) -> None:
        cut = self._open.break_off(shutting_down)
        log.warning("%d answers were cut off", cut)

    def stop(self, timeout: float) -> None:
        """Ends the engine's thread. Blocks up to `timeout` seconds."""
        for workers in (self._workers, self._grammar_worker):
            workers.shutdown(wait=False, cancel_futures=True)
        if self._engine is not None:
            try:
                self._engine.stop(timeout)
            except TimeoutError as error:
                log.warning("%s", error)

    @property
    def state(self) -> EngineState | None:
        return self._engine.state if self._engine else None

    @property
    def model(self) -> LoadedModel | None:
        return self._model

    @property
    def settings(self) -> HotSettings:
        """The values the engine runs with, never ones that it has yet to take up."""
        if self._settings is None:
            raise self._not_ready()
        announced = self._announced
        if announced and self.state and self.state.revision == announced.revision:
            self._settings, self._announced = announced, None
        return self._settings

    def trouble(self) -> str | None:
        """Why the process can make no more progress, if so."""
        if self._engine is None:
            return None
        if self._engine.failed:
            return "the engine has failed"
        stalled = self._engine.stalled_seconds(self.clock())
        if stalled > self.limits.stall_seconds:
            return f"no step has ended for {stalled:.0f} s though there is work"
        return None

    def report(self) -> str:
        """The engine's inside, for the log; nothing of any request's text."""
        return self._engine.dump() if self._engine else "no model is loaded"

    def check_ready(self) -> LoadedModel:
        """Raises Problem unless requests are taken."""
        if self._model is None or self.phase is not Phase.READY or self.trouble():
            raise self._not_ready()
        return self._model

    def check_room(self) -> None:
        """Raises Problem when the replica has as many requests as it may have."""
        bound = self.settings.max_concurrent_requests
        check_room(self._open.owed, bound, self._open.retry_after())

    async def in_worker(self, work: Callable[[Argument], Result], argument: Argument) -> Result:
        """Runs what takes milliseconds of CPU off the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._workers, work, argument)

    async def compile_grammar(
        self, model: LoadedModel, grammar: Grammar, param: str
    ) -> TokenMatcher:
        """Raises Problem. Grammars wait for each other, and nothing else waits for them."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._grammar_worker, model.codec.matcher, grammar)
        except GrammarRefused as refused:
            message = f"{param} cannot be used: {refused}."
            raise Problem(400, message, code="invalid_grammar", param=param) from refused

    def begin(self, model: LoadedModel, asked: Asked) -> Generation:
        """Admits a request and queues it. Raises Problem, with nothing queued.

        Whoever gets the generation closes it.
        """
        settings = self.settings
        workload = workload_of(asked.workload, settings)
        budget = output_budget(
            len(asked.prompt),
            asked.max_tokens,
            asked.default_tokens,
            settings.terms[workload],
            model.envelope,
        )
        self.check_room()
        end = frozenset[int]() if asked.ignore_end else model.codec.end_token_ids
        submission = Submission(
            request_id=uuid.uuid4().hex,
            workload=workload,
            tenant=asked.tenant,
            prompt=asked.prompt,
            max_new_tokens=budget,
            sampling=asked.sampling,
            stop_token_ids=end | asked.stop_token_ids,
            arrival=asked.arrival,
            min_new_tokens=min(asked.min_tokens, budget),
            matcher=asked.matcher,
            prompt_group=asked.prompt_group,
            cache_salt=asked.cache_salt,
        )
        return self._submit(submission, model, asked.stops)

    def close(self, generation: Generation) -> None:
        """The client has its answer, or has gone."""
        generation.break_off(client_left())
        self._open.discard(generation)
        self._metrics.record(generation.account())

    def turn_away(self, workload: str | None, problem: Problem) -> None:
        """Counts a request that never became a generation."""
        self._metrics.record(Account(workload or NO_WORKLOAD, outcome_of(problem)))

    def _submit(
        self, submission: Submission, model: LoadedModel, stops: tuple[str, ...]
    ) -> Generation:
        engine = self._engine
        if engine is None:
            raise self._not_ready()
        request_id = submission.request_id
        generation = Generation(
            request_id=request_id,
            workload=submission.workload,
            timeline=Timeline(
                submission.arrival, len(submission.prompt), submission.max_new_tokens
            ),
            detokeniser=model.codec.detokeniser(),
            stops=stops,
            backlog_tokens=self.limits.backlog_tokens,
            cancel=lambda: engine.cancel(request_id),
            retry_after=self._open.retry_after,
            gives_logprobs=submission.sampling.logprobs is not None,
        )
        try:
            engine.submit(submission)
        except EngineStopped as stopped:
            raise engine_failed() from stopped
        self._open.add(generation)
        return generation

    def _not_ready(self) -> Problem:
        if trouble := self.trouble():
            return Problem(503, f"This replica cannot serve: {trouble}.", code="unhealthy")
        if self.phase is Phase.DRAINING:
            return shutting_down()
        return Problem(503, "The model is still loading. Try again.", code="loading", retry_after=5)


def _objectives(settings: HotSettings) -> dict[str, tuple[Objective, ...]]:
    return {name: terms.objectives for name, terms in settings.terms.items()}
