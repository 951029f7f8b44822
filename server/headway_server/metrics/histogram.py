# SPDX-License-Identifier: Apache-2.0
"""A histogram whose edges belong to one series and not to the whole family.

prometheus_client fixes the edges per family, but a workload's own objectives have to be among
them: at an edge the histogram tells the exact share of requests, between two it has to guess.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client.utils import floatToGoString

from headway_api.objectives import Metric, Objective

THRESHOLD_MULTIPLES = (0.25, 0.5, 0.75, 1, 1.5, 2, 4)


class Histogram:
    """`edges` rise strictly and are inclusive upper bounds; `counts` has one bucket more, open
    above, and says what each bucket holds by itself."""

    def __init__(
        self, edges: tuple[float, ...], counts: Iterable[int] | None = None, total: float = 0.0
    ) -> None:
        self.edges = edges
        self.sum = total
        self._counts = [0] * (len(edges) + 1) if counts is None else list(counts)

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self.edges, value)] += 1
        self.sum += value

    def copy(self) -> "Histogram":
        return Histogram(self.edges, self._counts, self.sum)

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """`(le, observations up to it)` as Prometheus writes them, `+Inf` last."""
        names = [*map(floatToGoString, self.edges), "+Inf"]
        return list(zip(names, map(float, accumulate(self._counts)), strict=True))


def edges_for(
    metric: Metric, objectives: Iterable[Objective], ordinary: Iterable[float]
) -> tuple[float, ...]:
    """The `ordinary` edges in seconds, and multiples of the thresholds set for this metric."""
    return tuple(sorted({*ordinary, *_multiples(metric, objectives)}))


def _multiples(metric: Metric, objectives: Iterable[Objective]) -> Iterator[float]:
    for objective in objectives:
        if objective.metric == metric:
            for multiple in THRESHOLD_MULTIPLES:
                yield multiple * objective.threshold_milliseconds / 1000
