# SPDX-License-Identifier: Apache-2.0
"""Condition types and reasons of the three kinds, and the condition itself."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from headway_api.api_model import ApiModel
from headway_api.fields import Int64, Timestamp, TruthValue, list_map


class ConditionType(StrEnum):
    READY = "Ready"
    ADMITTED = "Admitted"
    MODEL_CACHED = "ModelCached"
    AVAILABLE = "Available"
    PROGRESSING = "Progressing"
    RUNTIME_CONFIG_SYNCED = "RuntimeConfigSynced"
    METRICS_AVAILABLE = "MetricsAvailable"
    SLO_MET = "SLOMet"
    TUNING = "Tuning"
    # TenantPolicy only
    CONFLICTED = "Conflicted"
    ENFORCED = "Enforced"


class Reason(StrEnum):
    """One enum for all types, because Ready repeats the reason of what keeps it from True."""

    PENDING = "Pending"
    READY = "Ready"
    # Admitted
    ALLOWED = "Allowed"
    NO_POLICY = "NoPolicy"
    AUDITED = "Audited"
    QUOTA_EXCEEDED = "QuotaExceeded"
    MODEL_NOT_ALLOWED = "ModelNotAllowed"
    CLASS_NOT_ALLOWED = "ClassNotAllowed"
    PRIORITY_NOT_ALLOWED = "PriorityNotAllowed"
    AUTOTUNE_MODE_NOT_ALLOWED = "AutotuneModeNotAllowed"
    AUTHENTICATION_REQUIRED = "AuthenticationRequired"
    REMOTE_CODE_NOT_ALLOWED = "RemoteCodeNotAllowed"
    POLICY_CONFLICT = "PolicyConflict"
    POD_SECURITY_LABEL_MISSING = "PodSecurityLabelMissing"
    # ModelCached
    CACHED = "Cached"
    DOWNLOADING = "Downloading"
    TOKEN_MISSING = "TokenMissing"  # noqa: S105
    NOT_FOUND = "NotFound"
    INSUFFICIENT_STORAGE = "InsufficientStorage"
    NOT_APPLICABLE = "NotApplicable"
    # Available
    MINIMUM_REPLICAS_AVAILABLE = "MinimumReplicasAvailable"
    SCALED_TO_ZERO = "ScaledToZero"
    UNSCHEDULABLE = "Unschedulable"
    CRASH_LOOPING = "CrashLooping"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    MODEL_LOAD_FAILED = "ModelLoadFailed"
    DEVICE_MISMATCH = "DeviceMismatch"
    # Progressing
    ROLLING_OUT = "RollingOut"
    COMPLETE = "Complete"
    INSUFFICIENT_CAPACITY_FOR_SURGE = "InsufficientCapacityForSurge"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    # RuntimeConfigSynced
    SYNCED = "Synced"
    APPLYING = "Applying"
    REPLICA_REJECTED = "ReplicaRejected"
    REPLICA_UNREACHABLE = "ReplicaUnreachable"
    # MetricsAvailable
    FRESH = "Fresh"
    STALE = "Stale"
    PROVIDER_UNREACHABLE = "ProviderUnreachable"
    PROVIDER_UNKNOWN = "ProviderUnknown"
    NO_TRAFFIC = "NoTraffic"
    MONITOR_NOT_SELECTED = "MonitorNotSelected"
    # SLOMet
    ALL_MET = "AllMet"
    BREACHED = "Breached"
    AT_BOUNDS = "AtBounds"
    INSUFFICIENT_SAMPLES = "InsufficientSamples"
    NO_OBJECTIVES = "NoObjectives"
    # Tuning
    EVALUATING = "Evaluating"
    TRIAL = "Trial"
    COOLDOWN = "Cooldown"
    HELD = "Held"
    DISABLED = "Disabled"
    BLOCKED_BY_ROLLOUT = "BlockedByRollout"
    BLOCKED_BY_METRICS = "BlockedByMetrics"
    REVERTED = "Reverted"
    # TenantPolicy
    APPLIED = "Applied"
    INVALID_SELECTOR = "InvalidSelector"
    RENDER_FAILED = "RenderFailed"
    UNIQUE = "Unique"
    PRECEDENCE_TIE = "PrecedenceTie"
    ENFORCING = "Enforcing"
    AUDIT_ONLY = "AuditOnly"
    ADMISSION_UNAVAILABLE = "AdmissionUnavailable"


class Condition(ApiModel):
    """One aspect of the object's state, after the Kubernetes convention."""

    type: str = Field(max_length=316)
    """Condition type, PascalCase."""
    status: TruthValue
    """True, False or Unknown."""
    observed_generation: Int64 | None = Field(default=None, ge=0)
    """Generation of the spec the condition was computed from."""
    last_transition_time: Timestamp
    """When the status last changed."""
    reason: str = Field(max_length=1024)
    """Machine-readable reason, CamelCase."""
    message: str = Field(max_length=32768)
    """Explanation for people."""


Conditions = Annotated[list[Condition], Field(max_length=16), list_map("type")]
