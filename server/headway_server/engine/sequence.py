# SPDX-License-Identifier: Apache-2.0
"""A request in the engine's hands: its tokens, its KV blocks, its seed."""

from dataclasses import dataclass, field

from headway_server.engine.messages import Sampling, Submission
from headway_server.runner.protocol import Row
from headway_server.scheduler import Chunk, Request


@dataclass(slots=True)
class Sequence:
    """`sampling` always has a seed. `generated` are the tokens drawn so far."""

    submission: Submission
    sampling: Sampling
    block_table: tuple[int, ...] = ()
    generated: list[int] = field(default_factory=list)
    queue_seconds: float | None = None

    def request(self) -> Request:
        submission = self.submission
        return Request(
            request_id=submission.request_id,
            workload=submission.workload,
            tenant=submission.tenant,
            prompt_tokens=len(submission.prompt),
            max_new_tokens=submission.max_new_tokens,
            arrival=submission.arrival,
            deadline=submission.deadline,
        )

    def chunk_row(self, chunk: Chunk) -> Row:
        tokens = self.submission.prompt[chunk.start : chunk.start + chunk.tokens]
        return self._row(tokens, chunk.start, chunk.last)

    def decode_row(self) -> Row:
        """The newest token goes in; its own KV is written in this step."""
        position = len(self.submission.prompt) + len(self.generated) - 1
        return self._row((self.generated[-1],), position, True)

    def take_queue_seconds(self) -> float | None:
        """Told once, with the first output after admission."""
        seconds, self.queue_seconds = self.queue_seconds, None
        return seconds

    def _row(self, token_ids: tuple[int, ...], start: int, samples: bool) -> Row:
        return Row(
            request_id=self.submission.request_id,
            token_ids=token_ids,
            start=start,
            block_table=self.block_table,
            samples=samples,
            sampling=self.sampling,
        )
