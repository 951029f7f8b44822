# SPDX-License-Identifier: Apache-2.0
"""A prediction of lengths that is often wrong, and keeps what it is told."""

from typing import Any

from headway_server.scheduler import Expectation, Request


class Guess:
    """Expects `more` tokens after those made already."""

    def __init__(self, more: int) -> None:
        self.more = more
        self.chosen: list[tuple[str, int]] = []
        self.observed: list[str] = []
        self.learnt: dict[str, int] = {}

    def expect(self, request: Request, generated: int = 0) -> Expectation:
        tokens = min(request.max_new_tokens, generated + self.more)
        return Expectation(tokens, tokens)

    def learn(self, request: Request, output_tokens: int) -> None:
        self.learnt[request.request_id] = output_tokens

    def choose(self, chosen: str, bins: int) -> None:
        self.chosen.append((chosen, bins))

    def observe(self, request: Request, hidden: Any) -> None:
        assert hidden.shape == (2,)
        self.observed.append(request.request_id)
