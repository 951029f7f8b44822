# SPDX-License-Identifier: Apache-2.0
"""The open requests: how they come in, and every way in which they go.

Scheduler, KV blocks and sequences are changed together here, so that they never disagree, and no
request leaves without its one last output.
"""

from collections.abc import Callable
from dataclasses import replace

from headway_server.engine.blocks import BlockPool
from headway_server.engine.messages import Finish, Submission, TokenLogprob
from headway_server.engine.outbox import Outbox
from headway_server.engine.prefix import PrefixChain, prefix_key
from headway_server.engine.sequence import Sequence
from headway_server.scheduler import Refusal, Refused, Request, Scheduler, Settings


class Desk:
    """`draw_seed` seeds the requests that came without a seed; `prefix_secret` keys the prefix
    cache, None switches it off."""

    def __init__(
        self,
        scheduler: Scheduler,
        blocks: BlockPool,
        outbox: Outbox,
        vocab_size: int,
        draw_seed: Callable[[], int],
        prefix_secret: bytes | None,
    ) -> None:
        self.sequences: dict[str, Sequence] = {}
        self._scheduler = scheduler
        self._blocks = blocks
        self._outbox = outbox
        self._vocab_size = vocab_size
        self._draw_seed = draw_seed
        self._prefix_secret = prefix_secret

    def accept(self, submission: Submission) -> None:
        sampling = submission.sampling
        if sampling.seed is None:
            sampling = replace(sampling, seed=self._draw_seed())
        sequence = Sequence.of(submission, sampling)
        try:
            self._check_vocabulary(submission.prompt)
            self._scheduler.add(sequence.request)
        except Refused as refused:
            self._outbox.refuse(submission.request_id, refused)
        else:
            self.sequences[submission.request_id] = sequence
            self._blocks.enter(submission.request_id, self._chain(sequence))

    def cancel(self, request_id: str) -> None:
        if sequence := self.sequences.get(request_id):
            self.leave(sequence, Finish.ABORT)

    def apply(self, settings: Settings) -> None:
        for request in self._scheduler.apply(settings):
            message = "the budget of the workload was lowered below what the request needs"
            self._dismiss(request, Refused(Refusal.TOO_LARGE, message))

    def expire(self, now: float) -> None:
        for request in self._scheduler.remove_past_deadline(now):
            sequence = self.sequences[request.request_id]
            self.close(sequence, Finish.DEADLINE, error="the request's deadline has passed")
        for request in self._scheduler.remove_timed_out(now):
            message = f"the request waited longer than workload {request.workload} allows"
            self._dismiss(request, Refused(Refusal.QUEUE_TIMEOUT, message))

    def leave(self, sequence: Sequence, finish: Finish, error: str | None = None) -> None:
        self._scheduler.remove(sequence.submission.request_id)
        self.close(sequence, finish, error=error)

    def close(
        self,
        sequence: Sequence,
        finish: Finish,
        token_ids: tuple[int, ...] = (),
        logprobs: tuple[TokenLogprob, ...] = (),
        error: str | None = None,
    ) -> None:
        """The last output of a request that the scheduler has let go."""
        del self.sequences[sequence.submission.request_id]
        self._blocks.forget(sequence.submission.request_id)
        sequence.ended = finish
        self._outbox.tell(sequence, token_ids, logprobs, error)

    def _check_vocabulary(self, prompt: tuple[int, ...]) -> None:
        """An id outside of it would fail inside the model, and the whole step with it."""
        if prompt and (min(prompt) < 0 or max(prompt) >= self._vocab_size):
            message = f"token ids must be from 0 to {self._vocab_size - 1}"
            raise Refused(Refusal.INVALID, message)

    def _chain(self, sequence: Sequence) -> PrefixChain | None:
        if self._prefix_secret is None:
            return None
        submission = sequence.submission
        key = prefix_key(self._prefix_secret, submission.tenant, submission.cache_salt)
        return PrefixChain(key, sequence.tokens, self._scheduler.capacity.block_size)

    def _dismiss(self, request: Request, refused: Refused) -> None:
        del self.sequences[request.request_id]
        self._blocks.forget(request.request_id)
        self._outbox.refuse(request.request_id, refused)
