# SPDX-License-Identifier: Apache-2.0
"""One pool as the tuner sees it: what of spec, status and class bears on a decision.

The status is the tuner's only memory, so everything a restarted process must know comes from
here. Times are Unix seconds. Nothing here may decide anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headway_api.autotune import Autotune
from headway_api.batching import KnobValues
from headway_api.conditions import Condition
from headway_api.inferencepool import InferencePoolSpec, InferencePoolStatus
from headway_api.inferencepool_status import Decision as HistoryEntry
from headway_api.inferencepool_status import WorkloadStatus
from headway_api.names import RECONCILE_ANNOTATION
from headway_api.objectives import Objective
from headway_api.workload import Workload
from headway_api.workloadclass import WorkloadClassSpec

PAUSED = "paused"
CHANGES = ("Increase", "Decrease")


@dataclass(frozen=True, slots=True)
class TunedWorkload:
    """`lowest` and `highest` bound what may be recommended; all values are tokens."""

    name: str
    class_name: str
    priority: int
    objectives: tuple[Objective, ...]
    lowest: int
    highest: int
    effective: int | None
    recommended: int | None
    wants_throughput: bool


@dataclass(frozen=True, slots=True)
class TunedPool:
    namespace: str
    name: str
    uid: str
    generation: int
    observed_generation: int
    paused: bool
    autotune: Autotune
    provider: str
    ready_replicas: int
    revision: str | None
    capacity: int | None
    workloads: tuple[TunedWorkload, ...]
    last_applied: float | None
    last_evaluated: float | None
    conditions: Mapping[str, Condition]
    history: tuple[HistoryEntry, ...]

    def last_change(self, workload: str) -> float | None:
        """When this workload's value was last moved, as far as the history tells."""
        times = [
            entry.time.timestamp()
            for entry in self.history
            if entry.workload_name == workload and entry.action in CHANGES
        ]
        return max(times, default=None)

    def last_decrease(self, workload: str) -> HistoryEntry | None:
        lowered = (e for e in reversed(self.history) if e.action == "Decrease")
        return next((entry for entry in lowered if entry.workload_name == workload), None)


def read_pool(manifest: Mapping[str, Any], classes: Mapping[str, WorkloadClassSpec]) -> TunedPool:
    """Raises pydantic's ValidationError for an object that the API server would not have stored."""
    meta = manifest["metadata"]
    spec = InferencePoolSpec.model_validate(manifest["spec"])
    status = InferencePoolStatus.model_validate(manifest.get("status") or {})
    measured = {workload.name: workload for workload in status.workloads or ()}
    capacity = status.engine.kv_cache_capacity_tokens if status.engine else None
    runtime = status.runtime_config
    applied = runtime.last_applied_time if runtime else None
    evaluations = [
        workload.last_evaluation_time.timestamp()
        for workload in measured.values()
        if workload.last_evaluation_time
    ]
    return TunedPool(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        generation=meta["generation"],
        observed_generation=status.observed_generation or 0,
        paused=(meta.get("annotations") or {}).get(RECONCILE_ANNOTATION) == PAUSED,
        autotune=spec.autotune,
        provider=spec.metrics.provider_name,
        ready_replicas=status.ready_replicas or 0,
        revision=runtime.revision if runtime else None,
        capacity=capacity,
        workloads=tuple(
            _read_workload(workload, measured.get(workload.name), classes, spec, capacity)
            for workload in spec.workloads
        ),
        last_applied=applied.timestamp() if applied else None,
        last_evaluated=max(evaluations, default=None),
        conditions={condition.type: condition for condition in status.conditions or ()},
        history=tuple((status.autotune.history if status.autotune else None) or ()),
    )


def _read_workload(
    workload: Workload,
    status: WorkloadStatus | None,
    classes: Mapping[str, WorkloadClassSpec],
    spec: InferencePoolSpec,
    capacity: int | None,
) -> TunedWorkload:
    """A class that does not exist gives nothing to inherit: no objectives, no bounds."""
    profile = classes.get(workload.class_name, WorkloadClassSpec())
    level = workload.slo if workload.slo and workload.slo.objectives is not None else profile.slo
    lowest, highest = _range(workload, profile, spec.engine.max_total_tokens, capacity)
    objectives = (level.objectives if level else None) or ()
    both = {spec.autotune.objective, profile.objective}
    return TunedWorkload(
        name=workload.name,
        class_name=workload.class_name,
        priority=profile.priority if workload.priority is None else workload.priority,
        objectives=tuple(objectives),
        lowest=lowest,
        highest=highest,
        effective=_tokens(status.effective if status else None),
        recommended=_tokens(status.recommended if status else None),
        wants_throughput=both == {"MaximizeThroughput"},
    )


def _tokens(values: KnobValues | None) -> int | None:
    return values.max_batch_total_tokens if values else None


def _range(
    workload: Workload, profile: WorkloadClassSpec, largest_request: int, capacity: int | None
) -> tuple[int, int]:
    """The workload's bounds, else the class's, inside what the engine can hold.

    A budget below the largest legal request would keep that request at the head of the queue for
    ever; one above the KV capacity does not exist. So `lowest > highest` is possible and means
    that no value may be recommended.
    """
    bounds = workload.bounds.max_batch_total_tokens if workload.bounds else None
    if bounds is None and profile.bounds is not None:
        bounds = profile.bounds.max_batch_total_tokens
    lowest = largest_request if bounds is None else max(bounds.min, largest_request)
    highest = capacity or 0
    return lowest, highest if bounds is None else min(bounds.max, highest)
