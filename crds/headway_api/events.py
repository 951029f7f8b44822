# SPDX-License-Identifier: Apache-2.0
"""Reasons of the Kubernetes Events Headway writes; a reason is Normal or Warning for good."""

from enum import StrEnum
from typing import Literal


class EventReason(StrEnum):
    POOL_ADMITTED = "PoolAdmitted"
    ROLLOUT_STARTED = "RolloutStarted"
    ROLLOUT_COMPLETED = "RolloutCompleted"
    MODEL_CACHED = "ModelCached"
    RUNTIME_CONFIG_APPLIED = "RuntimeConfigApplied"
    TUNING_RECOMMENDED = "TuningRecommended"
    TUNING_TRIAL_STARTED = "TuningTrialStarted"
    TUNING_PROMOTED = "TuningPromoted"
    SCALED_TO_ZERO = "ScaledToZero"

    POOL_REFUSED = "PoolRefused"
    QUOTA_EXCEEDED = "QuotaExceeded"
    INSUFFICIENT_CAPACITY_FOR_SURGE = "InsufficientCapacityForSurge"
    ROLLOUT_DEADLINE_EXCEEDED = "RolloutDeadlineExceeded"
    MODEL_DOWNLOAD_FAILED = "ModelDownloadFailed"
    DEVICE_MISMATCH = "DeviceMismatch"
    RUNTIME_CONFIG_REJECTED = "RuntimeConfigRejected"
    TUNING_REVERTED = "TuningReverted"
    TUNING_AT_BOUNDS = "TuningAtBounds"
    SLO_BREACHED = "SLOBreached"
    METRICS_UNAVAILABLE = "MetricsUnavailable"
    CHILD_DRIFT_REVERTED = "ChildDriftReverted"
    OPTIONAL_API_MISSING = "OptionalAPIMissing"
    POLICY_CONFLICT = "PolicyConflict"

    @property
    def type(self) -> Literal["Normal", "Warning"]:
        """The `type` of the Event object that carries this reason."""
        return "Normal" if self in _NORMAL else "Warning"


_NORMAL = frozenset(
    {
        EventReason.POOL_ADMITTED,
        EventReason.ROLLOUT_STARTED,
        EventReason.ROLLOUT_COMPLETED,
        EventReason.MODEL_CACHED,
        EventReason.RUNTIME_CONFIG_APPLIED,
        EventReason.TUNING_RECOMMENDED,
        EventReason.TUNING_TRIAL_STARTED,
        EventReason.TUNING_PROMOTED,
        EventReason.SCALED_TO_ZERO,
    }
)
