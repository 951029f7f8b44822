# SPDX-License-Identifier: Apache-2.0
"""The figures against their goals as one picture: a bar a figure, a dot a repetition."""

from collections.abc import Sequence
from pathlib import Path

from headway_bench.engine.figures import Measured
from headway_bench.engine.under_test import BenchFailed

MET, MISSED = "#2a7f62", "#c1666b"


def draw_plot(measured: Sequence[Measured], file: Path) -> None:
    """A bar's length is the figure as a multiple of its goal; the format is the file's suffix."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BenchFailed("--plot needs matplotlib: pip install 'headway[bench]'") from error
    with_goal = [(figure, figure.goal) for figure in measured if figure.goal]
    picture = Figure(figsize=(8, 0.6 + 0.45 * len(with_goal)), layout="constrained")
    axes = picture.add_subplot()
    for place, (figure, goal) in enumerate(reversed(with_goal)):
        assert goal  # noqa: S101 - filtered above
        axes.barh(place, figure.value / goal.bound, color=MET if goal.met(figure.value) else MISSED)
        repetitions = figure.details.get("ratio", {}).get("repetitions", [])
        dots = [value / goal.bound for value in repetitions]
        axes.plot(dots, [place] * len(dots), "k.", markersize=4)
    names = [f"{figure.name} (goal {goal})" for figure, goal in reversed(with_goal)]
    axes.set_yticks(range(len(names)), names)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xlabel("multiple of the goal")
    picture.savefig(file)
