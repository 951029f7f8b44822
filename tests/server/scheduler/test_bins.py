# SPDX-License-Identifier: Apache-2.0
"""Where the bins end, and how the hits of a predictor are counted."""

import math
import random
from collections import Counter

import pytest

from headway_server.scheduler.bins import (
    bin_of,
    bounds_for,
    equal_mass_bounds,
    exponential_bounds,
)
from headway_server.scheduler.bins_accuracy import BinAccuracy, BinHits


def test_bounds_of_equal_mass_split_the_samples_evenly() -> None:
    samples = random.Random(1).sample(range(1, 10_000), 64)
    bounds = equal_mass_bounds(samples, 8)
    assert Counter(bin_of(bounds, tokens) for tokens in samples) == dict.fromkeys(range(8), 8)


def test_equal_samples_share_a_bin() -> None:
    bounds = equal_mass_bounds([5] * 20 + [9] * 20, 4)
    assert len(bounds) == 3
    assert bin_of(bounds, 5) != bin_of(bounds, 9)
    with pytest.raises(ValueError, match="at least one sample"):
        equal_mass_bounds([], 4)


def test_a_length_at_a_bound_is_in_the_bin_below_it() -> None:
    assert [bin_of((10, 20), tokens) for tokens in (1, 10, 11, 20, 21)] == [0, 0, 1, 1, 2]


@pytest.mark.parametrize("rate", [1.0, 0.05, 0.001, 1e-7, 0.0, -0.001, -0.05, -1.0])
def test_exponential_bounds_hold_equal_mass_of_the_distribution_with_that_mean(rate: float) -> None:
    """Mean and mass are taken by summing the density e^(-rate x) up to 100."""
    points = [(i + 0.5) / 200 for i in range(20_000)]
    density = [math.exp(-rate * (x - (100 if rate < 0 else 0))) for x in points]
    total = sum(density)
    mean = sum(x * mass for x, mass in zip(points, density, strict=True)) / total
    bounds = exponential_bounds(mean, 100, 4)
    for index, bound in enumerate(bounds, 1):
        below = sum(mass for x, mass in zip(points, density, strict=True) if x <= bound)
        assert below / total == pytest.approx(index / 4, abs=0.005)


@pytest.mark.parametrize(("mean", "maximum"), [(0, 10), (10, 10), (11, 10)])
def test_there_is_no_distribution_with_such_a_mean(mean: float, maximum: float) -> None:
    with pytest.raises(ValueError, match="the mean must be above 0"):
        exponential_bounds(mean, maximum, 4)


def test_few_samples_give_the_bounds_of_an_exponential_many_their_own() -> None:
    assert bounds_for([], 80, 4) == pytest.approx((20, 40, 60))
    assert bounds_for([10, 30], 80, 4) == exponential_bounds(20, 80, 4)
    assert bounds_for(range(1, 81), 80, 4) == (20, 40, 60)
    assert bounds_for([80], 80, 4) == (80, 80, 80)


def test_hits_are_counted_by_bin() -> None:
    accuracy = BinAccuracy(refresh=40)
    for tokens in range(1, 41):
        accuracy.record(1, tokens, bins=4)
    assert accuracy.hits == BinHits()
    for expected, actual in [(5, 6), (10, 11), (30, 31), (1, 40), (40, 21)]:
        accuracy.record(expected, actual, bins=4)
    assert accuracy.hits == BinHits(predictions=5, exact=1, adjacent=4)


def test_the_bins_follow_the_answers() -> None:
    accuracy = BinAccuracy(window=32, refresh=32)
    for tokens in [*range(1, 33), *range(1001, 1033)]:
        accuracy.record(tokens, tokens, bins=2)
    accuracy.record(1001, 1032, bins=2)
    assert accuracy.hits == BinHits(predictions=33, exact=32, adjacent=33)


def test_other_bins_are_found_before_anybody_is_judged_by_them() -> None:
    accuracy = BinAccuracy(refresh=32)
    for bins in (2, 4):
        for tokens in range(1, 65):
            accuracy.record(tokens, tokens, bins)
        assert accuracy.hits.predictions == 16 * bins
