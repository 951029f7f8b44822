# SPDX-License-Identifier: Apache-2.0
"""What was measured of one pool in one window: plain values, all that a decision may rest on.

Counts are whole requests of all replicas. Tokens are those of one replica, because a budget
holds for each replica by itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from headway_api.objectives import Objective


@dataclass(frozen=True, slots=True)
class Window:
    """Unix seconds."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Defect(StrEnum):
    """Why a window cannot be judged; the values are reasons in the pool's status."""

    PROVIDER_UNKNOWN = "ProviderUnknown"
    PROVIDER_UNREACHABLE = "ProviderUnreachable"
    MISSING = "MetricsMissing"
    STALE = "MetricsStale"
    PARTIAL = "PartiallyScraped"
    RESET = "CounterReset"
    REPLICAS_CHANGED = "ReplicasChanged"
    REVISION_MISMATCH = "RevisionMismatch"


@dataclass(frozen=True, slots=True)
class Gap:
    """The first defect found, and a sentence for people."""

    defect: Defect
    message: str


@dataclass(frozen=True, slots=True)
class ObjectiveCount:
    """Samples: one a request, but for ITL, where every gap between two tokens is one.

    `observed_milliseconds` is an interpolated quantile, to be shown and never to decide on.
    """

    objective: Objective
    met: int
    missed: int
    observed_milliseconds: int | None = None

    @property
    def total(self) -> int:
        return self.met + self.missed


@dataclass(frozen=True, slots=True)
class WorkloadSample:
    """One workload in the window.

    budget: maxBatchTotalTokens in force, the smallest of the replicas.
    completed: requests that ended, other than by the client leaving or asking for the impossible.
    reserved_mean, reserved_peak: tokens held, of the replica that held most.
    waiting: mean queue length over the window, all replicas.
    blocked: steps in which the queue's head was held back, by reason.
    """

    name: str
    budget: int
    objectives: tuple[ObjectiveCount, ...]
    completed: int
    reserved_mean: float
    reserved_peak: float
    waiting: float
    blocked: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Observation:
    """`kv_usage_percent` is the mean over the window of the fullest replica. With a gap, the
    samples are not to be used and may be absent."""

    window: Window
    gap: Gap | None = None
    replicas: int = 0
    kv_usage_percent: float = 0.0
    workloads: tuple[WorkloadSample, ...] = ()

    def sample(self, workload: str) -> WorkloadSample:
        return next(sample for sample in self.workloads if sample.name == workload)
