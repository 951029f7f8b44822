# SPDX-License-Identifier: Apache-2.0
"""What becomes of raw figures: order of the runs, medians, ratios, noise, goals, the report."""

from itertools import count

import pytest

from headway_bench.engine.figures import GOALS, VS_STATIC, Measured
from headway_bench.engine.matmul_share import decode_seconds
from headway_bench.engine.repetitions import Series, interleaved, percentile_95, ratio_details
from headway_bench.engine.report import as_json, as_table
from headway_bench.engine.under_test import BenchFailed


def test_contenders_run_in_turn() -> None:
    order = count()
    runs = {name: lambda: float(next(order)) for name in ("a", "b")}
    series = interleaved(runs, 3, lambda line: None, "tok/s")
    assert series["a"].values == (0, 2, 4)
    assert series["b"].values == (1, 3, 5)


def test_a_ratio_is_taken_within_a_repetition() -> None:
    """The machine got four times slower half-way: that must not show."""
    ours, theirs = Series((100.0, 25.0, 100.0)), Series((50.0, 12.5, 40.0))
    assert ours.over(theirs).values == (2.0, 2.0, 2.5)
    details = ratio_details(ours, theirs, peer="x")
    assert details["ratio"]["median"] == 2.0
    assert details["bestOverBest"] == 2.0
    assert details["ours"]["repetitions"] == [100.0, 25.0, 100.0]


def test_the_best_of_times_is_the_shortest() -> None:
    assert Series((3.0, 1.0, 2.0), higher_is_better=False).best == 1.0
    assert Series((3.0, 1.0, 2.0)).best == 3.0
    assert Series((3.0, 1.0, 2.0)).spread == 1.0


def test_p95_is_a_value_that_was_measured() -> None:
    assert percentile_95([float(value) for value in range(1, 21)]) == 19.0
    assert percentile_95([5.0]) == 5.0


def test_a_decode_step_counts_only_between_full_outputs() -> None:
    """Prefill, the first output after it, and the tail in which rows are missing do not count."""
    steps = [(1.0, 3), (9.0, 4), (9.5, 4), (10.1, 4), (10.6, 4), (11.0, 1)]
    assert decode_seconds(steps, 4) == pytest.approx(0.5)
    with pytest.raises(BenchFailed, match="all 8 rows"):
        decode_seconds(steps, 8)


def test_the_report_has_each_figure_by_its_name() -> None:
    figure = Measured(VS_STATIC, 4.5, {"ratio": {"spread": 0.125}})
    report = as_json("tiny", {"threads": 1}, {"cpu": "x"}, [1, 2, 3], [2, 2, 3], [figure])
    assert report["ratio_vs_static"] == 4.5
    assert report["details"] == {"ratio_vs_static": {"ratio": {"spread": 0.125}}}
    assert report["loadAverage"] == {"before": [1, 2, 3], "after": [2, 2, 3]}
    row = as_table([figure]).splitlines()[1].split()
    assert row == ["ratio_vs_static", "4.5", ">=", "4", "yes", "12%"]


@pytest.mark.parametrize(
    ("name", "value", "met"),
    [("ratio_vs_static", 3.9, False), ("scheduler_ms_per_step", 0.9, True)],
)
def test_goals_know_their_direction(name: str, value: float, met: bool) -> None:
    goal = GOALS[name]
    assert goal is not None
    assert goal.met(value) is met
