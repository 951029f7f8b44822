# SPDX-License-Identifier: Apache-2.0
"""`spec.autotune`: how, how fast and how carefully the HOT values are tuned."""

from typing import ClassVar, Literal

from pydantic import Field

from headway_api.api_model import ApiModel, Rule
from headway_api.fields import Int32

AutotuneMode = Literal["Disabled", "Recommend", "Auto"]
TuningObjective = Literal["MaximizeThroughput", "MinimizeLatency"]


class Autotune(ApiModel):
    """Closed loop on the HOT values."""

    rules: ClassVar = (
        Rule(
            "!has(self.cooldownSeconds) || !has(self.warmupSeconds)"
            " || self.cooldownSeconds >= self.warmupSeconds",
            "cooldownSeconds must be at least warmupSeconds",
        ),
    )

    mode: AutotuneMode = "Recommend"
    """Disabled: never evaluate. Recommend: publish status.workloads[].recommended only. Auto: apply
    the recommendation too."""
    objective: TuningObjective = "MaximizeThroughput"
    """What to improve once every latency objective holds."""
    evaluation_period_seconds: Int32 = Field(default=120, ge=30, le=86_400)
    """Length of a window, and how often one is judged. Unit: seconds."""
    warmup_seconds: Int32 = Field(default=180, ge=0, le=3600)
    """Samples ignored after a pod becomes ready or a value changes. Unit: seconds."""
    cooldown_seconds: Int32 = Field(default=600, ge=0, le=86_400)
    """Shortest time between two changes of one workload. Unit: seconds."""
    min_sample_count: Int32 = Field(default=100, ge=1, le=1_000_000)
    """Completed requests a window needs before it is judged."""
    max_step_percent: Int32 = Field(default=20, ge=1, le=100)
    """Largest change of a value in one step. Unit: percent."""
    hysteresis_percent: Int32 = Field(default=10, ge=0, le=50)
    """Dead band around each threshold. Unit: percent."""
    max_kv_usage_percent: Int32 = Field(default=90, ge=10, le=100)
    """Tokens are never raised while KV usage is above this. Unit: percent."""
    canary_replicas: Int32 = Field(default=1, ge=0, le=100)
    """Replicas that take a new value first; 0 gives it to all at once."""
    revert_after_breached_periods: Int32 = Field(default=2, ge=1, le=20)
    """Breached windows in a row that revert a change."""
    on_metrics_unavailable: Literal["Hold", "Revert"] = "Hold"
    """Hold keeps the values; Revert returns to the last ones that met the objectives."""
