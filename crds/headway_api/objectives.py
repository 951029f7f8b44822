# SPDX-License-Identifier: Apache-2.0
"""Latency objectives: which share of a window's requests must stay within which latency.

An objective holds when at least `percentile` percent of the requests were within the threshold;
refused and failed requests count as misses. Hence it is measured as a pair of counters and never
as an interpolated quantile.
"""

from typing import Annotated, Literal

from pydantic import Field

from headway_api.api_model import ApiModel
from headway_api.fields import OBJECTIVES_MAX, Int32, Keywords, list_map

Metric = Literal["TTFT", "TPOT", "ITL", "E2E", "QueueTime"]
Percentile = Annotated[Literal[50, 90, 95, 99], Keywords(format="int32")]


class Objective(ApiModel):
    """A latency bound that a share of the requests must keep."""

    metric: Metric
    """Latency being bounded. TTFT: to the first token. TPOT: per output token after the first. ITL:
    between two tokens. E2E: whole request. QueueTime: until admission."""
    percentile: Percentile = 95
    """Percent of the window's requests that must be within the threshold."""
    threshold_milliseconds: Int32 = Field(ge=1, le=3_600_000)
    """Upper bound at that percentile. Unit: milliseconds."""

    @property
    def label(self) -> str:
        """Value of the `objective` label in metrics, such as `TTFT-p95-1000ms`."""
        return f"{self.metric}-p{self.percentile}-{self.threshold_milliseconds}ms"


Objectives = Annotated[
    list[Objective], Field(max_length=OBJECTIVES_MAX), list_map("metric", "percentile")
]


class ServiceLevel(ApiModel):
    """Latency objectives of a workload."""

    objectives: Objectives | None = None
    """Latency objectives; all must hold."""
