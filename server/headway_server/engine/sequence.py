# SPDX-License-Identifier: Apache-2.0
"""A request in the engine's hands: its tokens, its seed, and what is on its way to it."""

from collections.abc import Sequence as TokenIds
from dataclasses import dataclass, field

from headway_server.engine.messages import Finish, Sampling, Submission
from headway_server.runner.protocol import Row
from headway_server.scheduler import Chunk, Request

NOTHING: frozenset[int] = frozenset()


@dataclass(slots=True)
class Sequence:
    """`sampling` always has a seed. `tokens` are the prompt and the answer, `generated` the answer
    alone. `in_flight` counts tokens that launched steps will bring. `ended` is how it ended."""

    submission: Submission
    sampling: Sampling
    request: Request
    tokens: list[int]
    generated: list[int] = field(default_factory=list)
    in_flight: int = 0
    ended: Finish | None = None
    queue_seconds: float | None = None
    cached_tokens: int | None = None
    was_admitted: bool = False
    uses_history: bool = False

    @classmethod
    def of(cls, submission: Submission, sampling: Sampling) -> "Sequence":
        request = Request(
            request_id=submission.request_id,
            workload=submission.workload,
            tenant=submission.tenant,
            prompt_tokens=len(submission.prompt),
            max_new_tokens=submission.max_new_tokens,
            arrival=submission.arrival,
            deadline=submission.deadline,
            prompt_group=submission.prompt_group,
        )
        sequence = cls(submission, sampling, request, list(submission.prompt))
        sequence.uses_history = sampling.uses_history
        return sequence

    @property
    def needs_its_last_token(self) -> bool:
        """Whether the next row can be made only when the last one's token is here."""
        return self.uses_history or self.submission.matcher is not None

    def admit(self, now: float) -> None:
        """What is told of the admission is told of the first one only."""
        if not self.was_admitted:
            self.was_admitted = True
            self.queue_seconds = now - self.submission.arrival
            self.cached_tokens = self.request.cached_tokens

    def chunk_row(self, chunk: Chunk, block_table: TokenIds[int]) -> Row:
        tokens = tuple(self.tokens[chunk.start : chunk.start + chunk.tokens])
        return self._row(tokens, chunk.start, block_table, samples=chunk.last)

    @property
    def decode_position(self) -> int:
        """Of the newest token, which goes in next; its own KV is written in that step."""
        return len(self.tokens) - 1 + self.in_flight

    def decode_row(self, position: int, block_table: TokenIds[int]) -> Row:
        carried = self.in_flight > 0
        token = 0 if carried else self.tokens[-1]
        return self._row((token,), position, block_table, carried=carried)

    def add(self, token: int) -> None:
        self.tokens.append(token)
        self.generated.append(token)

    def take_admission(self) -> tuple[float | None, int | None]:
        """Queue time and cached tokens, told once, with the first output after admission."""
        told = self.queue_seconds, self.cached_tokens
        self.queue_seconds = self.cached_tokens = None
        return told

    def _row(
        self,
        token_ids: tuple[int, ...],
        start: int,
        block_table: TokenIds[int],
        samples: bool = True,
        carried: bool = False,
    ) -> Row:
        submission = self.submission
        may_stop = len(self.generated) + self.in_flight >= submission.min_new_tokens
        self.in_flight += samples
        return Row(
            request_id=submission.request_id,
            token_ids=token_ids,
            start=start,
            block_table=block_table,
            samples=samples,
            sampling=self.sampling,
            carried=carried,
            history=(submission.prompt, self.generated) if self.uses_history else None,
            banned=NOTHING if may_stop else submission.stop_token_ids,
            matcher=submission.matcher,
        )
