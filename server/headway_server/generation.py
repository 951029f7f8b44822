# SPDX-License-Identifier: Apache-2.0
"""One request between the engine and its client: tokens in, text out.

Lives on the event loop. The engine never waits for a client: what a client does not read is kept
up to a bound, beyond which the request is cancelled. Every generation ends with one outcome.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from headway_server.accounting import Account, Outcome, Timeline
from headway_server.detokenise import Detokeniser
from headway_server.engine.messages import Finish, TokenOutput
from headway_server.problem import Problem
from headway_server.scheduler import Refusal
from headway_server.stop_strings import StopStrings
from headway_server.token_logprobs import LogprobTrail, PlacedLogprob

STATUS_OF_REFUSAL = {
    Refusal.UNKNOWN_WORKLOAD: 400,
    Refusal.TOO_LARGE: 400,
    Refusal.INVALID: 400,
    Refusal.QUEUE_FULL: 429,
    Refusal.QUEUE_TIMEOUT: 503,
}


@dataclass(frozen=True, slots=True)
class Delta:
    """New text; `finish_reason` is set in the last one: `stop` or `length`."""

    text: str
    finish_reason: str | None = None
    logprobs: tuple[PlacedLogprob, ...] = ()


class Generation:
    """`cancel` asks the engine to drop the request; it may be called more than once.

    `backlog_tokens` bounds what waits for the client.
    """

    def __init__(
        self,
        request_id: str,
        workload: str,
        timeline: Timeline,
        detokeniser: Detokeniser,
        stops: tuple[str, ...],
        backlog_tokens: int,
        cancel: Callable[[], None],
        retry_after: Callable[[], int],
        gives_logprobs: bool = False,
    ) -> None:
        self.gives_logprobs = gives_logprobs
        self._trail = LogprobTrail()
        self.request_id = request_id
        self.timeline = timeline
        self.outcome: Outcome | None = None
        self._workload = workload
        self._detokeniser = detokeniser
        self._stops = StopStrings(stops)
        self._backlog_tokens = backlog_tokens
        self._cancel = cancel
        self._retry_after = retry_after
        self._inbox: list[tuple[float, TokenOutput]] = []
        self._inbox_tokens = 0
        self._news = asyncio.Event()
        self._broken_off: Problem | None = None

    def deliver(self, now: float, output: TokenOutput) -> None:
        """From the engine, by way of the event loop."""
        if self._broken_off is not None:
            return
        self._inbox.append((now, output))
        self._inbox_tokens += len(output.token_ids)
        self._news.set()
        if self._inbox_tokens > self._backlog_tokens:
            self.break_off(reads_too_slowly())

    def break_off(self, problem: Problem) -> None:
        """Ends the request before its time; the first problem stays the reason."""
        if self._broken_off is None and self.outcome is None:
            self._broken_off = problem
            self._inbox.clear()
            self._news.set()
            self._cancel()

    async def deltas(self, idle_seconds: float) -> AsyncIterator[Delta | None]:
        """The answer as it grows; None whenever nothing has come for `idle_seconds`.

        Raises Problem when the request was refused, failed or broken off.
        """
        while self.outcome is None:
            if not await self._has_news(idle_seconds):
                yield None
                continue
            try:
                delta = self._take()
            except Exception:
                self._cancel()
                self.outcome = self.outcome or Outcome.ERROR
                raise
            if delta.text or delta.finish_reason or delta.logprobs:
                yield delta

    def account(self) -> Account:
        return Account(
            self._workload,
            self.outcome or Outcome.ABORT,
            self.timeline.prompt_tokens,
            self.timeline.generated_tokens,
            self.timeline.latencies(),
            self.timeline.max_new_tokens,
        )

    async def _has_news(self, patience: float) -> bool:
        try:
            async with asyncio.timeout(patience):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True

    def _take(self) -> Delta:
        """Everything that has come, as one delta."""
        if self._broken_off is not None:
            raise self._end(self._broken_off)
        taken, self._inbox, self._inbox_tokens = self._inbox, [], 0
        text = ""
        for now, output in taken:
            text += self._read_tokens(now, output)
            if self._stops.matched:
                self.outcome = Outcome.STOP
                self._cancel()
            elif output.finish is not None:
                text += self._finish(output)
            if self.outcome is not None:
                return Delta(text, self.outcome.value, self._logprobs(text))
        return Delta(text, logprobs=self._logprobs(text))

    def _logprobs(self, text: str) -> tuple[PlacedLogprob, ...]:
        """What may be shown with this text; at the end, all that belongs to no stop string."""
        shown = self._trail.show(len(text))
        ended = self.outcome is not None and not self._stops.matched
        return shown + self._trail.rest() if ended else shown

    def _read_tokens(self, now: float, output: TokenOutput) -> str:
        """Token by token, so that what is counted ends with the token that ends a stop string."""
        if output.queue_seconds is not None:
            self.timeline.queue_seconds = output.queue_seconds
        text, tokens = "", 0
        for token_id in output.token_ids:
            piece = self._detokeniser.feed(token_id)
            if self.gives_logprobs and tokens < len(output.logprobs):
                self._trail.feed(output.logprobs[tokens], len(piece))
            tokens += 1
            text += self._stops.feed(piece)
            if self._stops.matched:
                break
        ended_by_token = output.finish is Finish.STOP and not self._stops.matched
        self.timeline.note(now, tokens + ended_by_token)
        return text

    def _finish(self, output: TokenOutput) -> str:
        match output.finish:
            case Finish.STOP | Finish.LENGTH:
                rest = self._stops.feed(self._detokeniser.flush()) + self._stops.flush()
                stopped = self._stops.matched or output.finish is Finish.STOP
                self.outcome = Outcome.STOP if stopped else Outcome.LENGTH
                return rest
            case Finish.REFUSED:
                raise self._end(self._refused(output))
            case Finish.DEADLINE:
                raise self._end(Problem(504, "The request's deadline has passed.", code="deadline"))
            case Finish.ABORT:
                raise self._end(shutting_down())
            case _:
                raise self._end(engine_failed())

    def _refused(self, output: TokenOutput) -> Problem:
        refusal = output.refusal or Refusal.INVALID
        if refusal is Refusal.STOPPING:
            return shutting_down()
        status = STATUS_OF_REFUSAL[refusal]
        return Problem(
            status,
            output.error or "The request was refused.",
            code="context_length_exceeded" if refusal is Refusal.TOO_LARGE else refusal.value,
            retry_after=None if status == 400 else self._retry_after(),
        )

    def _end(self, problem: Problem) -> Problem:
        cut_off = self.timeline.generated_tokens and problem.status == 503
        self.outcome = Outcome.ERROR if cut_off else outcome_of(problem)
        return problem


def client_left() -> Problem:
    return Problem(499, "The client closed the connection.")


def reads_too_slowly() -> Problem:
    return Problem(
        408, "The answer was cancelled: the client reads too slowly.", code="slow_reader"
    )


def shutting_down() -> Problem:
    message = "The server is shutting down. Try again."
    return Problem(503, message, code="shutting_down", retry_after=1)


def engine_failed() -> Problem:
    return Problem(500, "The engine failed on this request.", code="engine_error")


def outcome_of(problem: Problem) -> Outcome:
    match problem.status:
        case 408 | 499:
            return Outcome.ABORT
        case 429 | 503:
            return Outcome.REFUSED
        case 500:
            return Outcome.ERROR
        case 504:
            return Outcome.DEADLINE
        case _:
            return Outcome.INVALID
