# SPDX-License-Identifier: Apache-2.0
"""Which of an answer's logprobs may be shown: those whose text is shown.

Pure. A token's logprobs wait with its text, and those of a stop string are never shown.
"""

from collections import deque
from dataclasses import dataclass

from headway_server.engine.messages import TokenLogprob


@dataclass(frozen=True, slots=True)
class PlacedLogprob:
    """`start` is the place in the answer's text at which the token's own begins."""

    start: int
    logprob: TokenLogprob


class LogprobTrail:
    def __init__(self) -> None:
        self._waiting: deque[PlacedLogprob] = deque()
        self._characters = 0
        self._shown = 0

    def feed(self, logprob: TokenLogprob, characters: int) -> None:
        """A token with which so many characters became whole."""
        self._waiting.append(PlacedLogprob(self._characters, logprob))
        self._characters += characters

    def show(self, characters: int) -> tuple[PlacedLogprob, ...]:
        """So many more characters are shown; these come with them."""
        self._shown += characters
        shown = []
        while self._waiting and self._waiting[0].start < self._shown:
            shown.append(self._waiting.popleft())
        return tuple(shown)

    def rest(self) -> tuple[PlacedLogprob, ...]:
        """What is left when the answer has ended without a stop string."""
        rest = tuple(self._waiting)
        self._waiting.clear()
        return rest
