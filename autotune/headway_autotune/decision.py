# SPDX-License-Identifier: Apache-2.0
"""What the tuner decided about one pool, and why: values only.

Every verdict carries a machine-readable reason and a sentence, because "nothing was done" is an
answer that people ask about more often than a change.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from headway_autotune.attainment import Judgement
from headway_autotune.observation import Observation


class Action(StrEnum):
    INCREASE = "Increase"
    DECREASE = "Decrease"
    HOLD = "Hold"


class Reason(StrEnum):
    # The pool is not in a state to be measured.
    DISABLED = "Disabled"
    PAUSED = "Paused"
    SPEC_NOT_OBSERVED = "SpecNotObserved"
    NO_REPLICAS = "NoReplicas"
    NOT_AVAILABLE = "NotAvailable"
    ROLLING_OUT = "RollingOut"
    NOT_SYNCED = "NotSynced"
    CAPACITY_UNKNOWN = "CapacityUnknown"
    WARMING_UP = "WarmingUp"
    REPLICAS_CHANGED = "ReplicasChanged"
    REVISION_MISMATCH = "RevisionMismatch"
    # The measurements cannot be trusted.
    PROVIDER_UNKNOWN = "ProviderUnknown"
    PROVIDER_UNREACHABLE = "ProviderUnreachable"
    METRICS_MISSING = "MetricsMissing"
    METRICS_STALE = "MetricsStale"
    PARTIALLY_SCRAPED = "PartiallyScraped"
    COUNTER_RESET = "CounterReset"
    # Judged, and there is nothing to do, or nothing that may be done.
    NO_OBJECTIVES = "NoObjectives"
    NO_TRAFFIC = "NoTraffic"
    INSUFFICIENT_SAMPLES = "InsufficientSamples"
    OBJECTIVES_HELD = "ObjectivesHeld"
    IN_DEAD_BAND = "InDeadBand"
    NOT_BINDING = "NotBinding"
    GATE_BOUND = "GateBound"
    PREFILL_BOUND = "PrefillBound"
    LIMIT_BOUND = "LimitBound"
    AT_BOUNDS = "AtBounds"
    KV_USAGE_HIGH = "KVUsageHigh"
    KV_BOUND = "KVBound"
    OBJECTIVES_CONFLICT = "ObjectivesConflict"
    HIGHER_PRIORITY_FIRST = "HigherPriorityFirst"
    OTHER_CHANGE_FIRST = "OtherChangeFirst"
    COOLDOWN = "Cooldown"
    RECOMMENDATION_STANDS = "RecommendationStands"
    # Moves.
    QUEUE_BOUND = "QueueBound"
    THROUGHPUT_HEADROOM = "ThroughputHeadroom"
    BATCH_INTERFERENCE = "BatchInterference"
    DECODE_BOUND = "DecodeBound"
    MAKES_ROOM = "MakesRoom"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome for one workload.

    `old` and `new` are tokens and set exactly when the action is not Hold. `exhausted` says that an
    objective is broken and no permitted move of this workload's side is left: time to scale.
    """

    workload: str
    action: Action
    reason: Reason
    message: str
    old: int | None = None
    new: int | None = None
    exhausted: bool = False

    @property
    def moves(self) -> bool:
        return self.action is not Action.HOLD


@dataclass(frozen=True, slots=True)
class Decision:
    """One verdict per workload, at most one of which moves.

    `blocked` is why the pool was not judged at all; then `judgements` is empty. `observation` is
    None when nothing was asked of the metrics provider.
    """

    time: float
    verdicts: tuple[Verdict, ...]
    blocked: Reason | None
    observation: Observation | None
    judgements: Mapping[str, tuple[Judgement, ...]]

    @property
    def move(self) -> Verdict | None:
        return next((verdict for verdict in self.verdicts if verdict.moves), None)
