# SPDX-License-Identifier: Apache-2.0
"""What crosses between the HTTP side and the engine thread.

Everything here is immutable, so that either thread may keep a reference without a lock.
Times are seconds of the clock that the engine was given (monotonic in production).
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from headway_server.scheduler import Refusal

__all__ = ["Finish", "Refusal", "Sampling", "Submission", "TokenOutput"]


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
    in the batch. Without one the engine draws a seed. Raises ValueError on a value out of range.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature must be a number >= 0, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, not {self.top_p}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be >= 0, not {self.top_k}")


@dataclass(frozen=True, slots=True)
class Submission:
    """One request: `prompt` holds token ids, `deadline` the time at which it is given up.

    A `request_id` is used once.
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


@dataclass(frozen=True, slots=True)
class TokenOutput:
    """What one step brought to one request.

    `token_ids` are the new tokens (a stop token is not among them); `finish` is None until the
    last output of a request; `queue_seconds` comes once, with the first output after admission.
    `error` is a sentence for `Finish.ERROR`, `DEADLINE` and `REFUSED`.
    """

    request_id: str
    token_ids: tuple[int, ...] = ()
    finish: Finish | None = None
    queue_seconds: float | None = None
    error: str | None = None
    refusal: Refusal | None = None
