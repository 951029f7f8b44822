# SPDX-License-Identifier: Apache-2.0
"""The status of an InferencePool: what the operator and the tuner found out and did.

The tuner owns `autotune` and the measured part of `workloads[]`; the operator owns the rest.
"""

from typing import Annotated, Literal

from pydantic import Field

from headway_api.api_model import ApiModel
from headway_api.batching import KnobValues
from headway_api.conditions import Conditions
from headway_api.fields import (
    INT32_MAX,
    OBJECTIVES_MAX,
    WORKLOADS_MAX,
    DnsLabel,
    ImageReference,
    Int32,
    Int64,
    QualifiedName,
    Timestamp,
    TruthValue,
    list_map,
)

HISTORY_MAX = 10

ValueSource = Literal["Spec", "Class", "Profiled", "Autotune"]
TuningAction = Literal["Increase", "Decrease", "Hold", "Revert", "Promote"]
TunedParameter = Literal["maxBatchTotalTokens", "waitingServedRatioPercent"]


class EngineStatus(ApiModel):
    """Resolved envelope."""

    image: ImageReference | None = None
    """Image in use, kept when the operator is upgraded."""
    kv_cache_capacity_tokens: Int32 | None = Field(default=None, ge=0)
    """Smallest capacity that a ready replica reports. Unit: tokens."""


class RuntimeConfigStatus(ApiModel):
    """Rollout of the HOT values."""

    revision: str | None = Field(default=None, max_length=64)
    """Hash of the effective HOT values."""
    config_map_name: QualifiedName | None = None
    """ConfigMap the servers read them from."""
    applied_replicas: Int32 | None = Field(default=None, ge=0)
    """Ready replicas that acknowledged the revision."""
    pending_replicas: Int32 | None = Field(default=None, ge=0)
    """Ready replicas that have not."""
    last_applied_time: Timestamp | None = None
    """When every ready replica had acknowledged the revision."""


class ObjectiveStatus(ApiModel):
    """One objective as measured."""

    metric: str = Field(max_length=32)
    """Latency being bounded."""
    percentile: Int32
    """Percent of the window's requests that must be within the threshold."""
    threshold_milliseconds: Int32 | None = None
    """The bound. Unit: milliseconds."""
    observed_milliseconds: Int32 | None = None
    """What was measured. Unit: milliseconds."""
    met: TruthValue | None = None
    """True, False, or Unknown when the window has too few samples."""


class WorkloadStatus(ApiModel):
    """One workload's values and measurements."""

    name: DnsLabel
    """Workload."""
    effective: KnobValues | None = None
    """Values in force."""
    recommended: KnobValues | None = None
    """Values autotune would apply."""
    source: ValueSource | None = None
    """Where the effective values come from."""
    objectives: (
        Annotated[
            list[ObjectiveStatus],
            Field(max_length=OBJECTIVES_MAX),
            list_map("metric", "percentile"),
        ]
        | None
    ) = None
    """Measured objectives."""
    sample_count: Int32 | None = Field(default=None, ge=0)
    """Requests in the last window."""
    kv_usage_percent: Int32 | None = Field(default=None, ge=0, le=100)
    """Mean KV usage in the last window. Unit: percent."""
    last_evaluation_time: Timestamp | None = None
    """End of the last window."""


class Trial(ApiModel):
    """A change that is being judged."""

    workload_name: DnsLabel | None = None
    """Workload."""
    parameter: str | None = Field(default=None, max_length=64)
    """Knob that changes."""
    from_: Int32 | None = None
    """Old value."""
    to: Int32 | None = None
    """New value."""
    start_time: Timestamp | None = None
    """When the trial began."""
    replicas: Int32 | None = None
    """Replicas in the trial."""
    breached_periods: Int32 | None = None
    """Breached windows so far."""


class Decision(ApiModel):
    """One decision of the loop."""

    time: Timestamp
    """When it was taken."""
    workload_name: DnsLabel
    """Workload."""
    action: TuningAction
    """What was decided."""
    parameter: TunedParameter | None = None
    """Knob it concerns."""
    from_: Int32 | None = Field(default=None, ge=0, le=INT32_MAX)
    """Old value."""
    to: Int32 | None = Field(default=None, ge=0, le=INT32_MAX)
    """New value."""
    reason: str = Field(max_length=128)
    """Machine-readable reason, CamelCase."""
    message: str | None = Field(default=None, max_length=1024)
    """Explanation for people."""


class AutotuneStatus(ApiModel):
    """State of the loop."""

    trial: Trial | None = None
    """Change being judged."""
    history: Annotated[list[Decision], Field(max_length=HISTORY_MAX)] | None = None
    """Latest decisions, newest last; older ones are in Events and metrics."""


class TenantStatus(ApiModel):
    """Policy that governs this pool."""

    policy_name: QualifiedName | None = None
    """Name of the TenantPolicy."""


class InferencePoolStatus(ApiModel):
    """What was found out and done."""

    observed_generation: Int64 | None = Field(default=None, ge=0)
    """Newest spec generation acted on."""
    replicas: Int32 | None = None
    """Pods that exist."""
    ready_replicas: Int32 | None = None
    """Pods that serve."""
    updated_replicas: Int32 | None = None
    """Pods on the newest template."""
    available_replicas: Int32 | None = None
    """Pods ready for the minimum time."""
    selector: str | None = Field(default=None, max_length=1024)
    """Serialized pod selector, for the scale subresource."""
    url: str | None = Field(default=None, max_length=2048)
    """Base URL inside the cluster."""
    engine: EngineStatus | None = None
    """Resolved envelope."""
    runtime_config: RuntimeConfigStatus | None = None
    """Rollout of the HOT values."""
    workloads: (
        Annotated[list[WorkloadStatus], Field(max_length=WORKLOADS_MAX), list_map("name")] | None
    ) = None
    """Values and measurements per workload."""
    autotune: AutotuneStatus | None = None
    """State of the tuning loop."""
    tenant: TenantStatus | None = None
    """Policy that governs this pool."""
    conditions: Conditions | None = None
    """Standard conditions."""
