# SPDX-License-Identifier: Apache-2.0
"""How an objective stands in a window: the share of requests within the threshold, against the
share that was asked for.

Counts decide, never an interpolated quantile: a quantile of a histogram jumps with the bucket
edges, and a tail quantile of token gaps is discontinuous in the knobs.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from headway_autotune.observation import ObjectiveCount

ONE_SIDED_95 = 1.6448536269514722


class Standing(StrEnum):
    HELD = "Held"
    NEAR = "Near"
    """In the dead band around the target."""
    BREACHED = "Breached"
    UNKNOWN = "Unknown"
    """Too few requests."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """`attainment` and `target` are shares, 0..1; `attainment` is None without any request.

    `proven`: the target is below the Wilson lower bound of the attainment, so that the margin is
    not luck.
    """

    count: ObjectiveCount
    standing: Standing
    attainment: float | None
    target: float
    proven: bool = False

    @property
    def met(self) -> bool | None:
        """The objective as its user reads it, without dead band; None when it is unknown."""
        if self.standing is Standing.UNKNOWN or self.attainment is None:
            return None
        return self.attainment >= self.target


def judge(
    count: ObjectiveCount, *, requests: int, min_samples: int, hysteresis_percent: int
) -> Judgement:
    """The threshold of an objective is a share of requests, so its dead band is a share too:
    `hysteresis_percent` of the misses that the percentile allows, on either side. At p95 and 10 %
    that is 94.5 % to 95.5 %.

    Corrections go by the point estimate alone: they are one bounded step that the next window
    checks. Growth takes a risk for throughput's sake and asks for `proven` as well, which at p95
    takes 100 requests with at most one miss.

    `requests` is how many independent samples `count` is worth: gaps between the tokens of one
    answer are slow or fast together.
    """
    target = count.objective.percentile / 100
    share = count.met / count.total if count.total else None
    if share is None or requests < min_samples:
        return Judgement(count, Standing.UNKNOWN, share, target)
    band = (1 - target) * hysteresis_percent / 100
    if share < target - band:
        standing = Standing.BREACHED
    elif share < target + band:
        standing = Standing.NEAR
    else:
        standing = Standing.HELD
    proven = wilson_lower(share * requests, requests) >= target
    return Judgement(count, standing, share, target, proven)


def wilson_lower(met: float, total: int, z: float = ONE_SIDED_95) -> float:
    """Lower end of the Wilson score interval of a share (E. B. Wilson, 1927); `total` > 0."""
    share = met / total
    centre = share + z * z / (2 * total)
    spread = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return (centre - spread) / (1 + z * z / total)
