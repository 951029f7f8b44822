# SPDX-License-Identifier: Apache-2.0
"""From a runtime file to the values in force, or a refusal that names the field and the bound.

Pure. The values move only inside the envelope, which the process allocated at its start. A file is
taken whole or not at all: whoever gets `HotSettings` may put all of it into force.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from headway_api.batching import WorkloadLimits
from headway_api.builtin_classes import BUILTIN_CLASSES
from headway_api.engine import BatchFormation, Engine
from headway_api.objectives import Objective
from headway_api.runtime import RuntimeBatching, RuntimeFile, RuntimeValues, RuntimeWorkload
from headway_server.scheduler import Formation, Knobs, Settings, WorkloadPolicy

NO_LIMITS = WorkloadLimits()


@dataclass(frozen=True, slots=True)
class Envelope:
    """Token counts fixed at start. `prefill_tokens`: prompt tokens that one step can compute."""

    kv_capacity_tokens: int
    max_input_tokens: int
    max_total_tokens: int
    prefill_tokens: int


@dataclass(frozen=True, slots=True)
class WorkloadTerms:
    """What the HTTP side keeps of a workload; the rest is the scheduler's."""

    max_input_tokens: int
    max_output_tokens: int | None
    objectives: tuple[Objective, ...]


@dataclass(frozen=True, slots=True)
class HotSettings:
    """One revision of the HOT values. The first workload serves requests that name none."""

    scheduler: Settings
    max_concurrent_requests: int
    terms: Mapping[str, WorkloadTerms]

    @property
    def revision(self) -> str:
        return self.scheduler.revision

    @property
    def default_workload(self) -> str:
        return self.scheduler.workloads[0].name


class SettingsRejected(ValueError):
    """A well-formed file outside the envelope; `field` is the JSON path."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


def resolve(file: RuntimeFile, envelope: Envelope) -> HotSettings:
    """Raises SettingsRejected on the first value outside the envelope."""
    workloads = file.stable.workloads
    return HotSettings(
        scheduler=Settings(
            workloads=tuple(
                _policy(workload, envelope, f"stable.workloads[{index}]")
                for index, workload in enumerate(workloads)
            ),
            revision=file.revision,
            formation=_formation(file.stable.scheduling or BatchFormation()),
        ),
        max_concurrent_requests=file.stable.max_concurrent_requests,
        terms={workload.name: _terms(workload, envelope) for workload in workloads},
    )


def _formation(scheduling: BatchFormation) -> Formation:
    return Formation(
        policy=scheduling.policy,
        max_batch_size=scheduling.max_batch_size,
        max_delay_seconds=scheduling.max_delay_milliseconds / 1000,
        bins=scheduling.bins,
        length_predictor=scheduling.length_predictor,
        length_aware=scheduling.length_aware == "Enabled",
        output_reservation=scheduling.output_reservation,
    )


def _policy(workload: RuntimeWorkload, envelope: Envelope, path: str) -> WorkloadPolicy:
    limits = workload.limits or NO_LIMITS
    return WorkloadPolicy(
        name=workload.name,
        knobs=_knobs(workload.batching, envelope, f"{path}.batching"),
        priority=workload.priority,
        weight=workload.weight,
        max_running=limits.max_concurrent_requests,
        max_running_per_tenant=limits.max_concurrent_requests_per_tenant,
        max_queue_length=limits.max_queue_length,
        queue_timeout_seconds=limits.queue_timeout_seconds,
    )


def _knobs(batching: RuntimeBatching, envelope: Envelope, path: str) -> Knobs:
    return Knobs(
        max_batch_total_tokens=_budget(batching.max_batch_total_tokens, envelope, path),
        max_batch_prefill_tokens=batching.max_batch_prefill_tokens or envelope.prefill_tokens,
        waiting_served_ratio_percent=batching.waiting_served_ratio_percent,
        max_waiting_tokens=batching.max_waiting_tokens,
    )


def _budget(asked: int | None, envelope: Envelope, path: str) -> int:
    if asked is None:
        return envelope.kv_capacity_tokens
    field = f"{path}.maxBatchTotalTokens"
    if asked > envelope.kv_capacity_tokens:
        raise SettingsRejected(
            field, f"{asked} is above the KV capacity of {envelope.kv_capacity_tokens} tokens"
        )
    if asked < envelope.max_total_tokens:
        raise SettingsRejected(
            field,
            f"{asked} is below engine.maxTotalTokens, {envelope.max_total_tokens}: "
            "the largest request could never run",
        )
    return asked


def _terms(workload: RuntimeWorkload, envelope: Envelope) -> WorkloadTerms:
    limits = workload.limits or NO_LIMITS
    own = limits.max_input_tokens or envelope.max_input_tokens
    return WorkloadTerms(
        max_input_tokens=min(own, envelope.max_input_tokens),
        max_output_tokens=limits.max_output_tokens,
        objectives=tuple(workload.objectives),
    )


def default_file() -> RuntimeFile:
    """What a server without a runtime file runs with: one workload, as a bare pool has it."""
    chat = BUILTIN_CLASSES["chat"]
    workload = RuntimeWorkload(
        name="default",
        class_name="chat",
        priority=chat.priority,
        weight=1,
        batching=RuntimeBatching(waiting_served_ratio_percent=0, max_waiting_tokens=20),
        objectives=(chat.slo and chat.slo.objectives) or [],
    )
    return RuntimeFile.of(
        RuntimeValues(
            max_concurrent_requests=Engine().max_concurrent_requests, workloads=[workload]
        )
    )
