# SPDX-License-Identifier: Apache-2.0
"""Contenders measured in turn, A B C A B C, so that a machine that gets slower does so for all.

Every raw figure is kept. A ratio is taken within a repetition, where both sides met the same
machine; its median over the repetitions is what is reported.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Series:
    """The same figure, once a repetition."""

    values: tuple[float, ...]
    higher_is_better: bool = True

    @property
    def best(self) -> float:
        return max(self.values) if self.higher_is_better else min(self.values)

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def spread(self) -> float:
        """Largest less smallest, as a share of the median: the noise of the run."""
        return (max(self.values) - min(self.values)) / self.median if self.median else 0.0

    def over(self, other: "Series") -> "Series":
        """This one's figure over the other's, repetition by repetition."""
        pairs = zip(self.values, other.values, strict=True)
        return Series(tuple(ours / theirs for ours, theirs in pairs), self.higher_is_better)

    def as_json(self) -> dict[str, Any]:
        return {
            "best": rounded(self.best),
            "median": rounded(self.median),
            "spread": rounded(self.spread),
            "repetitions": [rounded(value) for value in self.values],
        }


def interleaved(
    contenders: Mapping[str, Callable[[], float]],
    repeats: int,
    say: Say,
    unit: str,
    higher_is_better: bool = True,
) -> dict[str, Series]:
    figures: dict[str, list[float]] = {name: [] for name in contenders}
    for repetition in range(1, repeats + 1):
        for name, run in contenders.items():
            figure = run()
            figures[name].append(figure)
            say(f"{name}: {figure:.4g} {unit} (repetition {repetition} of {repeats})")
    return {name: Series(tuple(values), higher_is_better) for name, values in figures.items()}


def ratio_details(ours: Series, theirs: Series, **names: Any) -> dict[str, Any]:
    """`bestOverBest` beside the paired ratios: what two quiet moments would have given."""
    return {
        **names,
        "ratio": ours.over(theirs).as_json(),
        "bestOverBest": rounded(ours.best / theirs.best),
        "ours": ours.as_json(),
        "theirs": theirs.as_json(),
    }


def rounded(value: float) -> float:
    """Five significant digits: more would be noise."""
    return float(f"{value:.5g}")


def percentile_95(values: Sequence[float]) -> float:
    """Nearest rank, so always a value that was measured."""
    ordered = sorted(values)
    return ordered[-(-95 * len(ordered) // 100) - 1]
