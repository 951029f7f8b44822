# SPDX-License-Identifier: Apache-2.0
"""What one step does: the scheduler's answer, and all that the engine needs to carry it out."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Blocked(StrEnum):
    """Why the head of a workload's queue did not join a step."""

    BUDGET = "budget"
    KV = "kv"
    GATE = "gate"
    PREFILL_BUDGET = "prefill_budget"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens `start .. start + tokens` of a request's prompt, or of prompt and answer so far
    after a preemption; `last` when the request's next token is sampled from it."""

    request_id: str
    start: int
    tokens: int
    last: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """`decode` rows compute one token each, `chunks` prompt tokens; `admitted` joined just now,
    `preempted` lost their place just now."""

    decode: tuple[str, ...]
    chunks: tuple[Chunk, ...]
    admitted: tuple[str, ...]
    blocked: Mapping[str, Blocked]
    preempted: tuple[str, ...] = ()

    @property
    def prompt_tokens(self) -> int:
        return sum(chunk.tokens for chunk in self.chunks)

    @property
    def request_ids(self) -> tuple[str, ...]:
        return self.decode + tuple(chunk.request_id for chunk in self.chunks)

    @property
    def sampling(self) -> tuple[str, ...]:
        """The requests that get a token."""
        return self.decode + tuple(chunk.request_id for chunk in self.chunks if chunk.last)

    def __bool__(self) -> bool:
        return bool(self.decode or self.chunks)
