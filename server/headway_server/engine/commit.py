# SPDX-License-Identifier: Apache-2.0
"""What a step has brought is booked and told: KV that is there, tokens, answers that end.

Whoever left while the step was under way gets nothing of it.
"""

import logging
from collections import Counter

from headway_server.engine.blocks import BlockPool
from headway_server.engine.describe import describe
from headway_server.engine.desk import Desk
from headway_server.engine.flight import Flight
from headway_server.engine.lengths import Lengths
from headway_server.engine.messages import Finish, TokenLogprob
from headway_server.engine.outbox import Outbox
from headway_server.engine.sequence import Sequence
from headway_server.runner.protocol import StepResult
from headway_server.scheduler import Scheduler

log = logging.getLogger(__name__)


class Commit:
    """`cancelled_tokens`: by workload, made for requests that were cancelled or too late."""

    def __init__(
        self,
        scheduler: Scheduler,
        blocks: BlockPool,
        desk: Desk,
        outbox: Outbox,
        lengths: Lengths | None,
    ) -> None:
        self.cancelled_tokens: Counter[str] = Counter()
        self._scheduler = scheduler
        self._blocks = blocks
        self._desk = desk
        self._outbox = outbox
        self._lengths = lengths

    def book(self, flight: Flight, result: StepResult) -> None:
        computed, logprobs = self._blocks.computed, result.logprobs
        drawn: list[tuple[str, Sequence, int, tuple[TokenLogprob, ...]]] = []
        stopped: set[str] = set()
        parts = zip(flight.rows, flight.sequences, result.tokens, strict=True)
        for index, (row, sequence, token) in enumerate(parts):
            request_id = row.request_id
            computed(request_id, row.start + len(row.token_ids))
            if token is None:
                continue
            sequence.in_flight -= 1
            if self._is_spoilt(sequence, token):
                continue
            if token in sequence.submission.stop_token_ids:
                stopped.add(request_id)
            logprob = logprobs.get(index)
            drawn.append((request_id, sequence, token, (logprob,) if logprob else ()))
        self._observe(flight, result)
        finished = set(self._scheduler.settle(flight.plan, stopped))
        for request_id, sequence, token, told in drawn:
            if request_id in stopped:
                self._desk.close(sequence, Finish.STOP)
                continue
            sequence.add(token)
            if request_id in finished:
                self._desk.close(sequence, Finish.LENGTH, (token,), told)
            else:
                self._outbox.tell(sequence, (token,), told)

    def _is_spoilt(self, sequence: Sequence, token: int) -> bool:
        """Whether nobody gets the token: the request has left, or its grammar refuses it."""
        submission = sequence.submission
        if sequence.ended:
            if sequence.ended in (Finish.ABORT, Finish.DEADLINE):
                self.cancelled_tokens[submission.workload] += 1
            return True
        if submission.matcher is None or token in submission.stop_token_ids:
            return False
        try:
            if submission.matcher.accept(token):
                return False
            message = "the grammar does not allow the token that was drawn"
        except Exception as error:
            log.exception("a grammar failed")
            message = f"the grammar failed: {describe(error)}"
        self._desk.leave(sequence, Finish.ERROR, message)
        return True

    def _observe(self, flight: Flight, result: StepResult) -> None:
        """Shows the predictor of lengths what the model made of each prompt."""
        if self._lengths is None or result.hidden is None:
            return
        parts = zip(flight.rows, flight.sequences, strict=True)
        sampling = (part for part in parts if part[0].samples)
        for hidden, (row, sequence) in zip(result.hidden, sampling, strict=True):
            if row.start < len(sequence.submission.prompt) and not sequence.ended:
                self._lengths.observe(sequence.request, hidden)
