# SPDX-License-Identifier: Apache-2.0
"""How often a length predictor names the right bin, or one beside it."""

from collections import deque
from dataclasses import dataclass

from headway_server.scheduler.bins import Bounds, bin_of, bounds_for


@dataclass(frozen=True, slots=True)
class BinHits:
    """Answers judged so far; `exact` in the right bin, `adjacent` in it or next to it."""

    predictions: int = 0
    exact: int = 0
    adjacent: int = 0


class BinAccuracy:
    """The bins are of equal mass over the last `window` real lengths and move after every `refresh`
    answers; an answer is judged by the bins from before it."""

    def __init__(self, window: int = 512, refresh: int = 32) -> None:
        self._refresh = refresh
        self._recent: deque[int] = deque(maxlen=window)
        self._bounds: Bounds | None = None
        self._bins = 0
        self._answers = 0
        self.hits = BinHits()

    def record(self, expected: int, actual: int, bins: int) -> None:
        """The first `refresh` answers only tell where the bins are."""
        if self._bounds is not None and bins == self._bins:
            self._judge(self._bounds, expected, actual)
        self._recent.append(actual)
        self._answers += 1
        if self._answers % self._refresh == 0:
            self._bins = bins
            self._bounds = bounds_for(self._recent, max(self._recent), bins)

    def _judge(self, bounds: Bounds, expected: int, actual: int) -> None:
        distance = abs(bin_of(bounds, expected) - bin_of(bounds, actual))
        hits = self.hits
        self.hits = BinHits(
            hits.predictions + 1, hits.exact + (distance == 0), hits.adjacent + (distance <= 1)
        )
