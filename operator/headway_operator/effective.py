# SPDX-License-Identifier: Apache-2.0
"""Which HOT values are in force: the spec's, else the class's, else what the server profiled.

In mode Auto the tuner's recommendation takes their place, but never outside the bounds and never
outside what the servers have allocated. A user's own value is never bent: a server that cannot
hold it refuses it, and that is reported.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headway_api.batching import Batching, Bounds, KnobValues
from headway_api.engine import BatchFormation
from headway_api.inferencepool import InferencePoolSpec
from headway_api.inferencepool_status import ValueSource
from headway_api.ranges import RatioRange
from headway_api.runtime import (
    RuntimeBatching,
    RuntimeFile,
    RuntimeScheduling,
    RuntimeValues,
    RuntimeWorkload,
)
from headway_api.workload import Workload
from headway_api.workloadclass import WorkloadClassSpec

DEFAULT_WAITING_SERVED_RATIO_PERCENT = 30
DEFAULT_MAX_WAITING_TOKENS = 20
ANY_RATIO = RatioRange(min=0, max=1000)


class MissingClass(Exception):
    """A workload inherits from a WorkloadClass that does not exist; the text says which."""


@dataclass(frozen=True, slots=True)
class EffectiveWorkload:
    """`source` tells where the token budget comes from."""

    runtime: RuntimeWorkload
    source: ValueSource

    def values(self, capacity: int | None) -> KnobValues:
        """The values in force, with the profiled budget resolved where the capacity is known."""
        batching = self.runtime.batching
        return KnobValues(
            max_batch_total_tokens=batching.max_batch_total_tokens or capacity,
            max_batch_prefill_tokens=batching.max_batch_prefill_tokens,
            waiting_served_ratio_percent=batching.waiting_served_ratio_percent,
            max_waiting_tokens=batching.max_waiting_tokens,
        )


def effective_workloads(
    spec: InferencePoolSpec,
    classes: Mapping[str, WorkloadClassSpec],
    recommended: Mapping[str, KnobValues],
    capacity: int | None,
) -> list[EffectiveWorkload]:
    """`recommended` by workload name; `capacity` is the KV tokens of the smallest replica."""
    if missing := sorted({workload.class_name for workload in spec.workloads} - classes.keys()):
        known = ", ".join(sorted(classes)) or "none"
        raise MissingClass(
            f"WorkloadClass {', '.join(missing)} does not exist (there are: {known}); the runtime"
            " configuration is not changed until it does"
        )
    auto = spec.autotune.mode == "Auto"
    return [
        _effective(
            workload,
            classes[workload.class_name],
            recommended.get(workload.name) if auto else None,
            envelope=(spec.engine.max_total_tokens, capacity),
        )
        for workload in spec.workloads
    ]


def runtime_file(spec: InferencePoolSpec, workloads: Iterable[EffectiveWorkload]) -> RuntimeFile:
    return RuntimeFile.of(
        RuntimeValues(
            max_concurrent_requests=spec.engine.max_concurrent_requests,
            scheduling=_scheduling(spec.engine.scheduling),
            workloads=[workload.runtime for workload in workloads],
        )
    )


def _scheduling(formation: BatchFormation) -> RuntimeScheduling | None:
    """None for the defaults: an older server than this operator refuses sections it cannot read."""
    if formation == BatchFormation():
        return None
    return RuntimeScheduling(**formation.model_dump())


def _effective(
    workload: Workload,
    profile: WorkloadClassSpec,
    recommended: KnobValues | None,
    envelope: tuple[int, int | None],
) -> EffectiveWorkload:
    own, inherited = workload.batching or Batching(), profile.batching or Batching()
    tuned = _clamped(recommended, workload.bounds or Bounds(), profile.bounds or Bounds(), envelope)
    budget = _first(
        tuned.max_batch_total_tokens, own.max_batch_total_tokens, inherited.max_batch_total_tokens
    )
    ratio = _first(
        tuned.waiting_served_ratio_percent,
        own.waiting_served_ratio_percent,
        inherited.waiting_served_ratio_percent,
    )
    steps = _first(own.max_waiting_tokens, inherited.max_waiting_tokens)
    level = workload.slo or profile.slo
    return EffectiveWorkload(
        runtime=RuntimeWorkload(
            name=workload.name,
            class_name=workload.class_name,
            priority=profile.priority if workload.priority is None else workload.priority,
            weight=workload.weight,
            batching=RuntimeBatching(
                max_batch_total_tokens=budget,
                max_batch_prefill_tokens=_first(
                    own.max_batch_prefill_tokens, inherited.max_batch_prefill_tokens
                ),
                waiting_served_ratio_percent=(
                    DEFAULT_WAITING_SERVED_RATIO_PERCENT if ratio is None else ratio
                ),
                max_waiting_tokens=DEFAULT_MAX_WAITING_TOKENS if steps is None else steps,
            ),
            limits=workload.limits,
            objectives=(level.objectives if level else None) or [],
        ),
        source=_source(tuned, own, inherited),
    )


def _clamped(
    recommended: KnobValues | None,
    own: Bounds,
    inherited: Bounds,
    envelope: tuple[int, int | None],
) -> Batching:
    """The two tuned knobs within bounds; where bounds and envelope disagree the envelope wins."""
    if recommended is None:
        return Batching()
    tokens = recommended.max_batch_total_tokens
    if tokens is not None:
        if span := own.max_batch_total_tokens or inherited.max_batch_total_tokens:
            tokens = min(max(tokens, span.min), span.max)
        smallest, capacity = envelope
        tokens = max(tokens if capacity is None else min(tokens, capacity), smallest)
    ratio = recommended.waiting_served_ratio_percent
    if ratio is not None:
        limits = (
            own.waiting_served_ratio_percent or inherited.waiting_served_ratio_percent or ANY_RATIO
        )
        ratio = min(max(ratio, limits.min), limits.max)
    return Batching(max_batch_total_tokens=tokens, waiting_served_ratio_percent=ratio)


def _source(tuned: Batching, own: Batching, inherited: Batching) -> ValueSource:
    if tuned != Batching():
        return "Autotune"
    if own.max_batch_total_tokens is not None:
        return "Spec"
    return "Profiled" if inherited.max_batch_total_tokens is None else "Class"


def _first(*layers: int | None) -> int | None:
    return next((value for value in layers if value is not None), None)
