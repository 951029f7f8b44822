# SPDX-License-Identifier: Apache-2.0
"""`spec.workloads[]`: one kind of traffic on a pool, with its own queue, knobs and objectives."""

from typing import ClassVar

from pydantic import Field

from headway_api.api_model import ApiModel, Rule
from headway_api.batching import Batching, Bounds, WorkloadLimits
from headway_api.fields import DnsLabel, Int32
from headway_api.objectives import ServiceLevel


def _within_bounds(knob: str) -> Rule:
    return Rule(
        "!has(self.batching) || !has(self.bounds)"
        f" || !has(self.batching.{knob}) || !has(self.bounds.{knob})"
        f" || (self.batching.{knob} >= self.bounds.{knob}.min"
        f" && self.batching.{knob} <= self.bounds.{knob}.max)",
        f"batching.{knob} must lie within bounds",
    )


class Workload(ApiModel):
    """One kind of traffic that shares the pool's replicas."""

    rules: ClassVar = (
        _within_bounds("maxBatchTotalTokens"),
        _within_bounds("waitingServedRatioPercent"),
    )

    name: DnsLabel
    """Key of the workload; clients select it with the x-workload header or by their API key."""
    class_name: DnsLabel = "chat"
    """WorkloadClass to inherit from."""
    priority: Int32 | None = Field(default=None, ge=-1000, le=1000)
    """HOT. Strict priority, higher first. Unset: the class's value."""
    weight: Int32 = Field(default=1, ge=1, le=1000)
    """HOT. Share among workloads of equal priority."""
    batching: Batching | None = None
    """First or pinned values of the knobs; autotune never writes here."""
    limits: WorkloadLimits | None = None
    """HOT. Admission limits of this workload."""
    bounds: Bounds | None = None
    """Ranges autotune stays in. Unset: the class's bounds."""
    slo: ServiceLevel | None = None
    """Latency objectives. Unset: the class's objectives."""
