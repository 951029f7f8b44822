# SPDX-License-Identifier: Apache-2.0
"""An objective's standing is read from whole requests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway_autotune.attainment import Judgement, Standing, judge, wilson_lower
from tests.autotune.given import TTFT, count


def judged_by_requests(
    met: int, missed: int, *, min_samples: int, hysteresis_percent: int
) -> Judgement:
    return judge(
        count(TTFT, met, missed),
        requests=met + missed,
        min_samples=min_samples,
        hysteresis_percent=hysteresis_percent,
    )


@pytest.mark.parametrize(
    ("met", "missed", "standing"),
    [
        (99, 0, Standing.UNKNOWN),
        (0, 99, Standing.UNKNOWN),
        (0, 0, Standing.UNKNOWN),
        (100, 0, Standing.HELD),
        (956, 44, Standing.HELD),
        (954, 46, Standing.NEAR),
        (950, 50, Standing.NEAR),
        (946, 54, Standing.NEAR),
        (944, 56, Standing.BREACHED),
        (0, 100, Standing.BREACHED),
    ],
)
def test_the_dead_band_is_a_tenth_of_the_allowed_misses_on_either_side(
    met: int, missed: int, standing: Standing
) -> None:
    judged = judge(
        count(TTFT, met, missed), requests=met + missed, min_samples=100, hysteresis_percent=10
    )
    assert judged.standing is standing


@pytest.mark.parametrize(
    ("met", "missed", "answer"), [(95, 5, True), (94, 6, False), (949, 51, False), (50, 0, None)]
)
def test_met_is_the_objective_to_the_letter_without_any_band(
    met: int, missed: int, answer: bool | None
) -> None:
    judged = judge(
        count(TTFT, met, missed), requests=met + missed, min_samples=100, hysteresis_percent=50
    )
    assert judged.met is answer


@pytest.mark.parametrize(
    ("met", "missed", "proven"), [(59, 0, True), (50, 0, False), (99, 1, True), (98, 2, False)]
)
def test_a_margin_is_proven_only_when_it_is_not_luck(met: int, missed: int, proven: bool) -> None:
    judged = judge(
        count(TTFT, met, missed), requests=met + missed, min_samples=1, hysteresis_percent=10
    )
    assert judged.proven is proven


@given(st.integers(1, 5000), st.data())
def test_the_wilson_bound_is_below_the_share_and_rises_with_evidence(
    total: int, data: st.DataObject
) -> None:
    met = data.draw(st.integers(0, total))
    bound = wilson_lower(met, total)
    assert -1e-9 <= bound <= met / total + 1e-9
    assert wilson_lower(10 * met, 10 * total) >= bound - 1e-9


def test_token_gaps_are_worth_no_more_than_the_requests_they_come_from() -> None:
    gaps = count(TTFT, 9_990, 10)
    thin = judge(gaps, requests=99, min_samples=100, hysteresis_percent=10)
    assert thin.standing is Standing.UNKNOWN
    few = judge(gaps, requests=40, min_samples=10, hysteresis_percent=10)
    assert (few.standing, few.proven) == (Standing.HELD, False)
