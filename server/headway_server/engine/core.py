# SPDX-License-Identifier: Apache-2.0
"""The step loop itself, without its thread: take in what was asked, plan, launch, commit.

Nobody else touches the scheduler, the KV blocks or the runner. A request that fails takes down at
most the step it was in; every request that came in gets exactly one output with a `finish`.
"""

import logging
from collections.abc import Callable

from headway_server.engine.blocks import BlockPool
from headway_server.engine.commit import Commit
from headway_server.engine.describe import describe
from headway_server.engine.desk import Desk
from headway_server.engine.flight import Flight
from headway_server.engine.inbox import Cancel, Inbox, Stop
from headway_server.engine.lengths import Lengths
from headway_server.engine.messages import Finish, Submission, TokenOutput
from headway_server.engine.outbox import Outbox
from headway_server.engine.report import report
from headway_server.engine.sequence import Sequence
from headway_server.engine.state import EngineState, StepStats, WorkloadState
from headway_server.runner.protocol import Row, Runner, RunnerLost, StepTooLarge
from headway_server.scheduler import (
    Capacity,
    Plan,
    Refusal,
    Refused,
    Scheduler,
    Settings,
)

log = logging.getLogger(__name__)

Clock = Callable[[], float]

# While a batch forms, how long to wait for a message before looking at deadlines again.
LONGEST_PAUSE_SECONDS = 0.05


class EngineCore:
    """`turn` is one round of the loop. `draw_seed` seeds the requests that came without a seed;
    `prefix_secret` keys the prefix cache, None switches it off.

    With a runner that runs ahead a step is launched before the last one's tokens were taken: a
    cancel or a deadline that comes in between still goes before those tokens.
    """

    def __init__(
        self,
        runner: Runner,
        settings: Settings,
        inbox: Inbox,
        clock: Clock,
        draw_seed: Callable[[], int],
        prefix_secret: bytes | None = None,
        lengths: Lengths | None = None,
    ) -> None:
        blocks = runner.kv_capacity_tokens // runner.block_size
        capacity = Capacity(blocks, runner.block_size, runner.max_step_tokens)
        self._runner = runner
        self._inbox = inbox
        self._clock = clock
        self._lengths = lengths
        self._choose_lengths(settings)
        self._blocks = BlockPool(blocks, runner.block_size)
        self._scheduler = Scheduler(capacity, settings, self._blocks, lengths)
        self._outbox = Outbox()
        self._desk = Desk(
            self._scheduler,
            self._blocks,
            self._outbox,
            runner.vocab_size,
            draw_seed,
            prefix_secret,
        )
        self._commit = Commit(self._scheduler, self._blocks, self._desk, self._outbox, lengths)
        self._plan = Plan((), (), (), {})
        self._flight: Flight | None = None
        self._steps = StepStats()
        self._step_ended = 0.0
        self._out_of_memory = 0
        self._last_progress = clock()
        self.stopping = False

    def turn(self) -> list[TokenOutput]:
        """Waits if there is nothing to do; then launches at most one step and settles one."""
        self._receive(*self._patience())
        now = self._last_progress = self._clock()
        self._desk.expire(now)
        self._plan = self._scheduler.plan(now)
        last, self._flight = self._flight, self._launch(self._plan, now)
        if last:
            self._settle(last)
        if self._flight and not (self._runner.runs_ahead and self._flight.may_be_followed):
            last, self._flight = self._flight, None
            self._settle(last)
        return self._outbox.take()

    def abandon_all(self, failure: str | None) -> list[TokenOutput]:
        """The last outputs: everything that is open ends, as an error if there is a `failure`."""
        for message in self._inbox.receive(wait=False):
            if isinstance(message, Submission):
                reason = failure or "the server is stopping"
                self._outbox.refuse(message.request_id, Refused(Refusal.STOPPING, reason))
        for sequence in list(self._desk.sequences.values()):
            self._desk.leave(sequence, Finish.ERROR if failure else Finish.ABORT, failure)
        return self._outbox.take()

    def snapshot(self) -> EngineState:
        scheduler, blocks = self._scheduler, self._blocks
        block_size = scheduler.capacity.block_size
        return EngineState(
            workloads={
                name: WorkloadState.of(workload, self._commit.cancelled_tokens[name])
                for name, workload in scheduler.workloads.items()
            },
            kv_capacity_tokens=scheduler.capacity.kv_tokens,
            kv_used_tokens=blocks.used * block_size,
            kv_reserved_tokens=(blocks.total - blocks.free_blocks) * block_size,
            steps=self._steps,
            last_progress=self._last_progress,
            revision=scheduler.revision,
            preemptions=scheduler.preemptions,
            evictions=blocks.evictions,
            prefix_queried_tokens=blocks.queried_tokens,
            prefix_hit_tokens=blocks.hit_tokens,
            out_of_memory=self._out_of_memory,
            step_prompt_tokens=scheduler.prompt_room,
            length_hits=self._lengths.hits() if self._lengths else {},
        )

    def dump(self) -> str:
        """For whoever has to find out why nothing moves. May be called from another thread."""
        return report(self._scheduler, self._blocks, self._plan, self._clock())

    def _patience(self) -> tuple[bool, float | None]:
        """Whether to wait for a message, and for how long."""
        if self._flight or self._plan:
            return self._scheduler.is_empty and not self._flight, None
        if self._scheduler.is_empty:
            return True, None
        due = self._scheduler.due()
        pause = LONGEST_PAUSE_SECONDS if due is None else due - self._clock()
        return True, min(LONGEST_PAUSE_SECONDS, max(0.0, pause))

    def _receive(self, wait: bool = False, seconds: float | None = None) -> None:
        for message in self._inbox.receive(wait, seconds):
            match message:
                case Submission():
                    self._desk.accept(message)
                case Cancel(request_id):
                    self._desk.cancel(request_id)
                case Settings():
                    self._choose_lengths(message)
                    self._desk.apply(message)
                case Stop():
                    self.stopping = True

    def _choose_lengths(self, settings: Settings) -> None:
        if self._lengths:
            formation = settings.formation
            self._lengths.choose(formation.length_predictor, formation.bins)

    def _launch(self, plan: Plan, now: float) -> Flight | None:
        if not plan:
            return None
        for request_id in plan.admitted:
            self._desk.sequences[request_id].admit(now)
        sequences = [self._desk.sequences[request_id] for request_id in plan.request_ids]
        rows = self._rows(plan, sequences)
        self._scheduler.launched(plan)
        started = self._clock()
        try:
            return Flight(plan, rows, sequences, self._runner.launch(rows), started)
        except RunnerLost:
            raise
        except Exception as error:
            log.exception("a step of %d requests failed", len(rows))
            self._fail(sequences, error)
            return None

    def _rows(self, plan: Plan, sequences: list[Sequence]) -> list[Row]:
        """In the order of the plan's requests; here they get the KV blocks that they write to."""
        table = self._blocks.table
        decoding = len(plan.decode)
        rows = []
        for request_id, sequence in zip(plan.decode, sequences[:decoding], strict=True):
            position = sequence.decode_position
            rows.append(sequence.decode_row(position, table(request_id, position + 1)))
        for chunk, sequence in zip(plan.chunks, sequences[decoding:], strict=True):
            end = chunk.start + chunk.tokens
            rows.append(sequence.chunk_row(chunk, table(chunk.request_id, end)))
        return rows

    def _settle(self, flight: Flight) -> None:
        try:
            result = flight.step.result()
        except RunnerLost:
            raise
        except Exception as error:
            log.exception("a step of %d requests failed", len(flight.rows))
            self._fail(flight.sequences, error)
            return
        started = max(flight.started, self._step_ended)
        now = self._step_ended = self._last_progress = self._clock()
        self._steps = self._steps.plus(flight.plan, len(flight.plan.sampling), now - started)
        self._receive()
        self._desk.expire(now)
        self._commit.book(flight, result)

    def _fail(self, sequences: list[Sequence], error: Exception) -> None:
        """The requests of the step end; the engine goes on, with smaller steps if need be."""
        if isinstance(error, StepTooLarge):
            self._out_of_memory += 1
            self._scheduler.halve_prompt_room()
        message = f"the model failed on this request's step: {describe(error)}"
        for sequence in sequences:
            if not sequence.ended:
                self._desk.leave(sequence, Finish.ERROR, message)
