# SPDX-License-Identifier: Apache-2.0
"""The step loop itself, without its thread: take in what was asked, plan, execute, commit.

Nobody else touches the scheduler, the KV blocks or the runner. A request that fails takes down at
most the step it was in; every request that came in gets exactly one output with a `finish`.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from headway_server.engine.blocks import BlockPool
from headway_server.engine.inbox import Cancel, Inbox, Stop
from headway_server.engine.messages import Finish, Submission, TokenOutput
from headway_server.engine.sequence import Sequence
from headway_server.engine.state import EngineState, StepStats, WorkloadState
from headway_server.runner.protocol import Row, Runner, RunnerLost
from headway_server.scheduler import Capacity, Plan, Refusal, Refused, Request, Scheduler, Settings

log = logging.getLogger(__name__)

Clock = Callable[[], float]


class EngineCore:
    """`turn` is one round of the loop. `draw_seed` seeds the requests that came without a seed."""

    def __init__(
        self,
        runner: Runner,
        settings: Settings,
        inbox: Inbox,
        clock: Clock,
        draw_seed: Callable[[], int],
    ) -> None:
        blocks = runner.kv_capacity_tokens // runner.block_size
        capacity = Capacity(blocks, runner.block_size, runner.max_step_tokens)
        self._runner = runner
        self._inbox = inbox
        self._clock = clock
        self._draw_seed = draw_seed
        self._scheduler = Scheduler(capacity, settings)
        self._blocks = BlockPool(blocks)
        self._sequences: dict[str, Sequence] = {}
        self._outputs: list[TokenOutput] = []
        self._steps = StepStats()
        self._last_progress = clock()
        self.stopping = False

    def turn(self) -> list[TokenOutput]:
        """Waits for a message if there is no request; then runs at most one step."""
        self._receive(wait=self._scheduler.is_empty)
        now = self._last_progress = self._clock()
        self._expire(now)
        plan = self._scheduler.plan(now)
        if plan:
            self._step(plan, now)
        return self._take_outputs()

    def abandon_all(self, failure: str | None) -> list[TokenOutput]:
        """The last outputs: everything that is open ends, as an error if there is a `failure`."""
        for message in self._inbox.receive(wait=False):
            if isinstance(message, Submission):
                reason = failure or "the server is stopping"
                self._refuse(message.request_id, Refused(Refusal.STOPPING, reason))
        for request_id in list(self._sequences):
            self._scheduler.remove(request_id)
            self._close(request_id, Finish.ERROR if failure else Finish.ABORT, failure)
        return self._take_outputs()

    def snapshot(self) -> EngineState:
        workloads = self._scheduler.workloads.items()
        return EngineState(
            workloads={name: WorkloadState.of(workload) for name, workload in workloads},
            kv_capacity_tokens=self._scheduler.capacity.kv_tokens,
            kv_used_tokens=self._blocks.used * self._scheduler.capacity.block_size,
            steps=self._steps,
            last_progress=self._last_progress,
            revision=self._scheduler.revision,
        )

    def _receive(self, wait: bool = False) -> None:
        for message in self._inbox.receive(wait):
            match message:
                case Submission():
                    self._accept(message)
                case Cancel(request_id):
                    self._leave([request_id], Finish.ABORT)
                case Settings():
                    self._apply(message)
                case Stop():
                    self.stopping = True

    def _accept(self, submission: Submission) -> None:
        sampling = submission.sampling
        if sampling.seed is None:
            sampling = replace(sampling, seed=self._draw_seed())
        sequence = Sequence(submission, sampling)
        try:
            self._check_vocabulary(submission.prompt)
            self._scheduler.add(sequence.request())
        except Refused as refused:
            self._refuse(submission.request_id, refused)
        else:
            self._sequences[submission.request_id] = sequence

    def _check_vocabulary(self, prompt: tuple[int, ...]) -> None:
        """An id outside of it would fail inside the model, and the whole step with it."""
        size = self._runner.vocab_size
        if prompt and (min(prompt) < 0 or max(prompt) >= size):
            raise Refused(Refusal.INVALID, f"token ids must be from 0 to {size - 1}")

    def _apply(self, settings: Settings) -> None:
        for request in self._scheduler.apply(settings):
            message = "the budget of the workload was lowered below what the request needs"
            self._dismiss(request, Refused(Refusal.TOO_LARGE, message))

    def _expire(self, now: float) -> None:
        for request in self._scheduler.remove_past_deadline(now):
            self._close(request.request_id, Finish.DEADLINE, "the request's deadline has passed")
        for request in self._scheduler.remove_timed_out(now):
            message = f"the request waited longer than workload {request.workload} allows"
            self._dismiss(request, Refused(Refusal.QUEUE_TIMEOUT, message))

    def _step(self, plan: Plan, now: float) -> None:
        for request_id in plan.admitted:
            self._place(self._sequences[request_id], now)
        rows = [self._sequences[request_id].decode_row() for request_id in plan.decode]
        rows += [self._sequences[chunk.request_id].chunk_row(chunk) for chunk in plan.chunks]
        started = self._clock()
        try:
            tokens = sampled_tokens(rows, self._runner.launch(rows).result().tokens)
        except RunnerLost:
            raise
        except Exception as error:
            log.exception("a step of %d requests failed", len(rows))
            message = f"the model failed on this request's step: {describe(error)}"
            self._leave(plan.request_ids, Finish.ERROR, message)
            return
        self._last_progress = self._clock()
        self._steps = self._steps.plus(plan, len(tokens), self._last_progress - started)
        self._receive()
        self._commit(plan, tokens)

    def _place(self, sequence: Sequence, now: float) -> None:
        """The blocks for the whole answer are taken at once, as the scheduler reserved them."""
        submission = sequence.submission
        reserve = len(submission.prompt) + submission.max_new_tokens
        sequence.block_table = self._blocks.take(self._scheduler.capacity.blocks_for(reserve))
        sequence.queue_seconds = now - submission.arrival

    def _commit(self, plan: Plan, tokens: dict[str, int]) -> None:
        """Books the step. What was cancelled while it ran is gone already and gets no token."""
        stopped = {
            request_id
            for request_id, token in tokens.items()
            if (sequence := self._sequences.get(request_id))
            and token in sequence.submission.stop_token_ids
        }
        self._scheduler.launched(plan)
        finished = set(self._scheduler.settle(plan, stopped))
        for request_id, token in tokens.items():
            sequence = self._sequences.get(request_id)
            if sequence is None:
                continue
            if request_id in stopped:
                self._close(request_id, Finish.STOP)
                continue
            sequence.generated.append(token)
            if request_id in finished:
                self._close(request_id, Finish.LENGTH, token_ids=(token,))
            else:
                queue_seconds = sequence.take_queue_seconds()
                self._outputs.append(TokenOutput(request_id, (token,), None, queue_seconds))

    def _leave(self, request_ids: Iterable[str], finish: Finish, error: str | None = None) -> None:
        for request_id in request_ids:
            if self._scheduler.remove(request_id):
                self._close(request_id, finish, error)

    def _close(
        self,
        request_id: str,
        finish: Finish,
        error: str | None = None,
        token_ids: tuple[int, ...] = (),
    ) -> None:
        sequence = self._sequences.pop(request_id)
        self._blocks.give_back(sequence.block_table)
        queue_seconds = sequence.take_queue_seconds()
        self._outputs.append(TokenOutput(request_id, token_ids, finish, queue_seconds, error))

    def _dismiss(self, request: Request, refused: Refused) -> None:
        del self._sequences[request.request_id]
        self._refuse(request.request_id, refused)

    def _refuse(self, request_id: str, refused: Refused) -> None:
        output = TokenOutput(
            request_id, finish=Finish.REFUSED, error=str(refused), refusal=refused.reason
        )
        self._outputs.append(output)

    def _take_outputs(self) -> list[TokenOutput]:
        outputs, self._outputs = self._outputs, []
        return outputs


def sampled_tokens(rows: list[Row], sampled: list[int | None]) -> dict[str, int]:
    return {
        row.request_id: token for row, token in zip(rows, sampled, strict=True) if token is not None
    }


def describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
