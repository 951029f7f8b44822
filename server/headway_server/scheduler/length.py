# SPDX-License-Identifier: Apache-2.0
"""What a request's answer will probably be long, in tokens."""

from dataclasses import dataclass
from typing import Protocol

from headway_server.scheduler.request import Request


@dataclass(frozen=True, slots=True)
class Expectation:
    """Both are output tokens, from 1 to the request's `max_new_tokens`: `tokens` to order and
    group requests by, `bound` a high quantile (p90) to reserve KV by."""

    tokens: int
    bound: int


class LengthPredictor(Protocol):
    def expect(self, request: Request, generated: int = 0) -> Expectation:
        """The whole answer's length, given that `generated` tokens of it were made already."""
        ...

    def learn(self, request: Request, output_tokens: int) -> None:
        """An answer came to its natural end."""
        ...
