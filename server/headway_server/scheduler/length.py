# SPDX-License-Identifier: Apache-2.0
"""How long an answer is expected to be: what admission order, bins and reservations ask.

An expectation never decides how long an answer may get: that is `max_new_tokens`, always.
"""

from dataclasses import dataclass
from typing import Protocol

from headway_server.scheduler.request import Request


@dataclass(frozen=True, slots=True)
class Expectation:
    """Output tokens in all, those made already among them: `tokens` is the mean, `bound` a length
    that nine answers in ten stay within. Both are from 1 to `max_new_tokens`, bound >= tokens."""

    tokens: int
    bound: int


class LengthPredictor(Protocol):
    """Answers from what it was taught, and the same for the same lessons in the same order."""

    def expect(self, request: Request, generated: int = 0) -> Expectation:
        """Given that the answer goes on after `generated` tokens."""
        ...

    def learn(self, request: Request, output_tokens: int) -> None:
        """The answer ended by itself or at its limit. Not called for one that was cut off from
        outside (cancelled, failed): its length says nothing."""
        ...


class MaxTokens:
    """Every answer is as long as it may be."""

    def expect(self, request: Request, generated: int = 0) -> Expectation:
        return Expectation(request.max_new_tokens, request.max_new_tokens)

    def learn(self, request: Request, output_tokens: int) -> None:
        """There is nothing to learn."""
