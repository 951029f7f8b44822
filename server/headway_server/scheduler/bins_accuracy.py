# SPDX-License-Identifier: Apache-2.0
"""How often a length predictor names the right bin, or one beside it."""

from collections import deque

from headway_server.scheduler.bins import Bounds, bin_of, bounds_for


class BinAccuracy:
    """Counters that only rise. The bins are of equal mass over the last `window` real lengths and
    move after every `refresh` answers; an answer is judged by the bins from before it."""

    def __init__(self, bins: int, window: int = 512, refresh: int = 32) -> None:
        self._bins = bins
        self._refresh = refresh
        self._recent: deque[int] = deque(maxlen=window)
        self._bounds: Bounds | None = None
        self._answers = 0
        self.predictions = 0
        self.exact = 0
        self.adjacent = 0
        """In the right bin or next to it: `exact` is part of it."""

    def record(self, expected: int, actual: int) -> None:
        """The first `refresh` answers only tell where the bins are."""
        if self._bounds is not None:
            distance = abs(bin_of(self._bounds, expected) - bin_of(self._bounds, actual))
            self.predictions += 1
            self.exact += distance == 0
            self.adjacent += distance <= 1
        self._recent.append(actual)
        self._answers += 1
        if self._answers % self._refresh == 0:
            self._bounds = bounds_for(self._recent, max(self._recent), self._bins)
