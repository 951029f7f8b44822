# SPDX-License-Identifier: Apache-2.0
"""Healthy pools and windows, to be made sick one field at a time."""

from datetime import UTC, datetime
from typing import Any

from headway_api.autotune import Autotune
from headway_api.conditions import Condition
from headway_api.fields import TruthValue
from headway_api.inferencepool_status import Decision as HistoryEntry
from headway_api.objectives import Objective
from headway_autotune.observation import ObjectiveCount, Observation, Window, WorkloadSample
from headway_autotune.pool import TunedPool, TunedWorkload

NOW = 1_800_000_000.0
REVISION = "0123456789abcdef"
CAPACITY = 100_000
SETTLE = 15.0

TTFT = Objective(metric="TTFT", percentile=95, threshold_milliseconds=1000)
TPOT = Objective(metric="TPOT", percentile=95, threshold_milliseconds=50)


def autotune(**changes: Any) -> Autotune:
    return Autotune(**{"mode": "Auto", **changes})


def workload(name: str = "chat", **changes: Any) -> TunedWorkload:
    given: dict[str, Any] = {
        "class_name": name,
        "priority": 100,
        "objectives": (TTFT,),
        "lowest": 8192,
        "highest": CAPACITY,
        "effective": None,
        "recommended": None,
        "wants_throughput": True,
    }
    return TunedWorkload(name=name, **{**given, **changes})


def pool(*workloads: TunedWorkload, **changes: Any) -> TunedPool:
    given: dict[str, Any] = {
        "namespace": "team-a",
        "name": "support",
        "uid": "4f9c",
        "generation": 3,
        "observed_generation": 3,
        "paused": False,
        "autotune": autotune(),
        "provider": "default",
        "ready_replicas": 1,
        "revision": REVISION,
        "capacity": CAPACITY,
        "last_applied": NOW - 3600,
        "last_evaluated": NOW - 120,
        "conditions": {
            "Available": condition("Available", "True"),
            "Progressing": condition("Progressing", "False", reason="Complete"),
            "RuntimeConfigSynced": condition("RuntimeConfigSynced", "True"),
        },
        "history": (),
    }
    return TunedPool(workloads=workloads or (workload(),), **{**given, **changes})


def condition(
    kind: str, status: TruthValue, reason: str = "Because", message: str = "In a sentence."
) -> Condition:
    return Condition(
        type=kind,
        status=status,
        observed_generation=3,
        last_transition_time=moment(NOW - 7200),
        reason=reason,
        message=message,
    )


def changed(workload: str, ago: float, action: str = "Increase") -> HistoryEntry:
    return HistoryEntry.model_validate(
        {
            "time": moment(NOW - ago),
            "workloadName": workload,
            "action": action,
            "reason": "QueueBound" if action == "Increase" else "ObjectivesHeld",
        }
    )


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def count(
    objective: Objective, met: int, missed: int, observed: int | None = None
) -> ObjectiveCount:
    return ObjectiveCount(objective, met, missed, observed)


def sample(name: str = "chat", **changes: Any) -> WorkloadSample:
    """Busy, budget-bound, and every objective held by 200 of 200 requests."""
    given: dict[str, Any] = {
        "budget": 20_000,
        "objectives": (count(TTFT, 200, 0),),
        "completed": 200,
        "reserved_mean": 18_000.0,
        "reserved_peak": 20_000.0,
        "waiting": 3.0,
        "blocked": {"budget": 500},
    }
    return WorkloadSample(name=name, **{**given, **changes})


def idle(name: str, **changes: Any) -> WorkloadSample:
    return sample(
        name,
        **{
            "objectives": (count(TTFT, 0, 0),),
            "completed": 0,
            "reserved_mean": 0.0,
            "reserved_peak": 0.0,
            "waiting": 0.0,
            "blocked": {},
            **changes,
        },
    )


def observation(*samples: WorkloadSample, **changes: Any) -> Observation:
    given: dict[str, Any] = {
        "window": Window(NOW - 120, NOW),
        "replicas": 1,
        "kv_usage_percent": 40.0,
    }
    return Observation(workloads=samples or (sample(),), **{**given, **changes})
