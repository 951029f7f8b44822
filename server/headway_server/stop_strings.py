# SPDX-License-Identifier: Apache-2.0
"""Ending an answer at a stop string without ever showing part of one.

Text is held back only while it may still become a stop string: the longest end of it that begins
one. Where the text is cut does not depend on how it was split into pieces.
"""


class StopStrings:
    """`stops` are not empty strings. Once `matched`, nothing more is released."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""
        self.matched = False

    def feed(self, piece: str) -> str:
        """The text that may be shown now."""
        if not self._stops or self.matched:
            return "" if self.matched else piece
        text = self._held + piece
        cut = self._first_match(text)
        if cut is None:
            cut = len(text) - self._undecided(text)
        else:
            self.matched = True
        self._held = text[cut:]
        return text[:cut]

    def flush(self) -> str:
        """What was held back, when the answer has ended without a stop string."""
        held, self._held = self._held, ""
        return "" if self.matched else held

    def _first_match(self, text: str) -> int | None:
        """Start of the match that ends first, of equal ends the longest."""
        found = [
            (start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0
        ]
        return min(found)[1] if found else None

    def _undecided(self, text: str) -> int:
        """Length of the longest end of `text` that is a proper beginning of a stop string."""
        longest = min(len(text), max(map(len, self._stops)) - 1)
        for length in range(longest, 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stops if len(stop) > length):
                return length
        return 0
