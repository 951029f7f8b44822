# SPDX-License-Identifier: Apache-2.0
"""What crosses between the HTTP side and the engine thread.

Everything here is immutable, so that either thread may keep a reference without a lock.
Times are seconds of the clock that the engine was given (monotonic in production).
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from headway_server.scheduler import Refusal

__all__ = [
    "Finish",
    "Refusal",
    "Sampling",
    "Submission",
    "TokenLogprob",
    "TokenMatcher",
    "TokenOutput",
]


class Finish(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"
    DEADLINE = "deadline"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn. `temperature` 0 is greedy; `top_k` 0 keeps every token.

    With a `seed` the tokens depend on the seed and the position only, never on what else is
    in the batch. Without one the engine draws a seed.

    `min_p` drops tokens less probable than that share of the most probable one.
    `repetition_penalty` (1 is none) weighs on tokens of prompt and answer, `presence_penalty` and
    `frequency_penalty` (0 is none) on tokens of the answer. `logit_bias` is `(token id, added)`.
    `logprobs` None gives none, n gives the drawn token's and those of the n most probable.
    Raises ValueError on a value out of range.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature must be a number >= 0, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, not {self.top_p}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be >= 0, not {self.top_k}")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p must be from 0 to 1, not {self.min_p}")
        if not (math.isfinite(self.repetition_penalty) and self.repetition_penalty > 0):
            raise ValueError(f"repetition_penalty must be above 0, not {self.repetition_penalty}")
        for name in ("presence_penalty", "frequency_penalty"):
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"{name} must be a number, not {getattr(self, name)}")
        if self.logprobs is not None and self.logprobs < 0:
            raise ValueError(f"logprobs must be >= 0, not {self.logprobs}")

    @property
    def uses_history(self) -> bool:
        """Whether the tokens so far weigh on the next one."""
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1, 0, 0)


class TokenMatcher(Protocol):
    """A grammar, and how far one answer has come in it. Owned by one request."""

    def fill(self, mask: NDArray[np.int32]) -> None:
        """Sets bit `i % 32` of word `i // 32` where token i may come next, clears the others.

        Called while the forward pass runs, from another thread than `accept`, never at once with
        it.
        """
        ...

    def accept(self, token: int) -> bool:
        """Moves on by a token that was drawn; False if the grammar does not allow it."""
        ...


@dataclass(frozen=True, slots=True)
class Submission:
    """One request: `prompt` holds token ids, `deadline` the time at which it is given up.

    A `request_id` is used once. `prompt_group` is equal for requests that share a system prompt;
    it only informs the prediction of lengths. `cache_salt` narrows prefix reuse within the tenant.
    No stop token is drawn before `min_new_tokens`.
    """

    request_id: str
    workload: str
    tenant: str
    prompt: tuple[int, ...]
    max_new_tokens: int
    sampling: Sampling
    stop_token_ids: frozenset[int]
    arrival: float
    deadline: float | None = None
    min_new_tokens: int = 0
    matcher: TokenMatcher | None = None
    prompt_group: int = 0
    cache_salt: str = ""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural logarithms of probabilities as the model gave them, before temperature and cuts;
    `top` is `(token id, logprob)`, the most probable first."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class TokenOutput(NamedTuple):
    """What one step brought to one request.

    `token_ids` are the new tokens (a stop token is not among them); `finish` is None until the
    last output of a request; `queue_seconds` and `cached_tokens` (prompt tokens whose KV was there
    already) come once, with the first output after admission. `logprobs` has one entry a token
    where they were asked for. `error` is a sentence for `Finish.ERROR`, `DEADLINE` and `REFUSED`.
    """

    request_id: str
    token_ids: tuple[int, ...] = ()
    finish: Finish | None = None
    queue_seconds: float | None = None
    error: str | None = None
    refusal: Refusal | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
    cached_tokens: int | None = None
