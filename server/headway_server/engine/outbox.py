# SPDX-License-Identifier: Apache-2.0
"""What the engine has to say after a step: each request's tokens, and how it ended."""

from headway_server.engine.messages import Finish, TokenLogprob, TokenOutput
from headway_server.engine.sequence import Sequence
from headway_server.scheduler import Refused


class Outbox:
    def __init__(self) -> None:
        self._outputs: list[TokenOutput] = []

    def tell(
        self,
        sequence: Sequence,
        token_ids: tuple[int, ...] = (),
        logprobs: tuple[TokenLogprob, ...] = (),
        error: str | None = None,
    ) -> None:
        """What a step brought; the last word where the sequence has `ended`."""
        queue_seconds = cached_tokens = None
        if sequence.queue_seconds is not None:
            queue_seconds, cached_tokens = sequence.take_admission()
        self._outputs.append(
            TokenOutput(
                sequence.request.request_id,
                token_ids,
                sequence.ended,
                queue_seconds,
                error,
                logprobs=logprobs,
                cached_tokens=cached_tokens,
            )
        )

    def refuse(self, request_id: str, refused: Refused) -> None:
        self._outputs.append(
            TokenOutput(
                request_id, finish=Finish.REFUSED, error=str(refused), refusal=refused.reason
            )
        )

    def take(self) -> list[TokenOutput]:
        outputs, self._outputs = self._outputs, []
        return outputs
