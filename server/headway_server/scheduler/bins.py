# SPDX-License-Identifier: Apache-2.0
"""Bins of like output length: where they end, and how often a prediction hits the right one.

k bins have k - 1 bounds in rising order; bin i holds the lengths above bound i - 1 up to and with
bound i. Bins of equal mass fill equally fast, which is what batching by bins needs
(multi-bin batching, arXiv 2412.04504).
"""

import math
from bisect import bisect_left
from collections.abc import Sequence

Bounds = tuple[float, ...]
SAMPLES_PER_BIN = 4
LARGEST_EXPONENT = 500.0


def bin_of(bounds: Sequence[float], tokens: float) -> int:
    return bisect_left(bounds, tokens)


def equal_mass_bounds(samples: Sequence[int], bins: int) -> Bounds:
    """Quantiles of the samples. Equal samples share a bin, so bounds may repeat and bins be empty.

    Raises ValueError if there are no samples.
    """
    if not samples:
        raise ValueError("bounds of equal mass need at least one sample")
    ordered = sorted(samples)
    return tuple(ordered[-(-i * len(ordered) // bins) - 1] for i in range(1, bins))


def exponential_bounds(mean: float, maximum: float, bins: int) -> Bounds:
    """Bounds of equal mass for an exponential length cut off at `maximum` that has this `mean`.

    On (0, M] with rate r the distribution function is F(x) = (1 - e^(-r x)) / (1 - e^(-r M)).
    F(x) = i / k gives bound i: x = -ln(1 - i / k (1 - e^(-r M))) / r.
    Its mean is 1 / r - M / (e^(r M) - 1). With u = r M that is M (1 / u - 1 / (e^u - 1)), which
    falls from M to 0 as u rises: u is found by halving. u = 0 is the uniform distribution (mean
    M / 2); a larger mean makes u negative, and the formulas still hold.

    Raises ValueError unless 0 < mean < maximum.
    """
    if not 0 < mean < maximum:
        raise ValueError(f"the mean must be above 0 and below {maximum}, not {mean}")
    u = exponent_for(mean / maximum)
    if abs(u) < 1e-6:
        return tuple(maximum * i / bins for i in range(1, bins))
    return tuple(-maximum * math.log1p(math.expm1(-u) * i / bins) / u for i in range(1, bins))


def exponent_for(relative_mean: float) -> float:
    """The u at which 1 / u - 1 / (e^u - 1) is `relative_mean`."""
    low, high = -LARGEST_EXPONENT, LARGEST_EXPONENT
    for _ in range(64):
        middle = (low + high) / 2
        if mean_at(middle) > relative_mean:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def mean_at(u: float) -> float:
    """Around 0 the two terms cancel, and the first two of the series do: 1 / 2 - u / 12."""
    return 0.5 - u / 12 if abs(u) < 1e-4 else 1 / u - 1 / math.expm1(u)


def bounds_for(samples: Sequence[int], maximum: int, bins: int) -> Bounds:
    """Quantiles once there are enough samples to tell them, an exponential of their mean before;
    without any sample the uniform one up to `maximum`."""
    if len(samples) >= bins * SAMPLES_PER_BIN:
        return equal_mass_bounds(samples, bins)
    mean = sum(samples) / len(samples) if samples else maximum / 2
    if not 0 < mean < maximum:
        return (float(maximum),) * (bins - 1)
    return exponential_bounds(mean, maximum, bins)
