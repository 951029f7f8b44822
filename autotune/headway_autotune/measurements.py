# SPDX-License-Identifier: Apache-2.0
"""From Prometheus' answers to one observation: subtract counters, and find what is wrong first.

Pure. The checks run from the coarse to the fine, so that the sentence in the status names the
cause and not its consequences.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from headway_api import metric_names as names
from headway_api.objectives import Objective
from headway_autotune.observation import (
    Defect,
    Gap,
    ObjectiveCount,
    Observation,
    Window,
    WorkloadSample,
)
from headway_autotune.pool import TunedPool, TunedWorkload
from headway_operator.prometheus import Sample

COVERED_SHARE = 0.75
NOT_COMPLETED = frozenset({"abort", "invalid"})
BUDGET_KNOB = "maxBatchTotalTokens"

Samples = list[Sample]


@dataclass(frozen=True, slots=True)
class Measurements:
    """Instant vectors: `warm`, `start` and `end` are snapshots of those moments, the rest spans the
    window. `quantiles` is by metric and percentile."""

    warm: Samples
    start: Samples
    end: Samples
    resets: Samples
    scrapes: Samples
    reserved_mean: Samples
    reserved_peak: Samples
    waiting_mean: Samples
    kv_used_mean: Samples
    quantiles: Mapping[tuple[str, int], Samples] = field(default_factory=dict)


class _Torn(Exception):
    def __init__(self, defect: Defect, message: str) -> None:
        super().__init__(message)
        self.gap = Gap(defect, message)


def assemble(
    pool: TunedPool, window: Window, measured: Measurements, scrape_interval: float
) -> Observation:
    try:
        replicas = _replicas(pool, window, measured, scrape_interval)
        return Observation(
            window=window,
            replicas=len(replicas),
            kv_usage_percent=_kv_usage(replicas, measured),
            workloads=tuple(_workload(workload, replicas, measured) for workload in pool.workloads),
        )
    except _Torn as torn:
        return Observation(window, gap=torn.gap)


def _replicas(
    pool: TunedPool, window: Window, measured: Measurements, scrape_interval: float
) -> frozenset[str]:
    """Pods that had the model loaded from before the warm-up to the end of the window."""
    present = _loaded(measured.end)
    if not present:
        raise _nothing(measured)
    for pod in sorted(present ^ (_loaded(measured.start) & _pods(measured.warm))):
        text = f"Replica {pod} was not there for the whole window and the warm-up before it."
        raise _Torn(Defect.REPLICAS_CHANGED, text)
    _check_coverage(present, window, measured.scrapes, scrape_interval)
    for sample in measured.resets:
        if sample.labels.get("pod") in present:
            text = f"A counter of replica {sample.labels['pod']} started anew in the window."
            raise _Torn(Defect.RESET, text)
    _check_revision(pool, present, measured)
    return frozenset(present)


def _nothing(measured: Measurements) -> _Torn:
    if not measured.scrapes:
        text = "Prometheus has no sample of this pool in the window; is it scraped?"
        return _Torn(Defect.MISSING, text)
    if any(_select(measured.end, names.KV_TOKENS, state="capacity")):
        return _Torn(Defect.MISSING, "No replica has its model loaded.")
    return _Torn(Defect.STALE, "The newest sample of this pool is too old.")


def _check_coverage(
    present: set[str], window: Window, scrapes: Samples, scrape_interval: float
) -> None:
    expected = window.seconds / scrape_interval
    counts = {sample.labels.get("pod"): sample.value for sample in scrapes}
    for pod in sorted(present):
        got = counts.get(pod, 0)
        if got < COVERED_SHARE * expected:
            text = (
                f"Replica {pod} was scraped {got:.0f} times in the window, {expected:.0f} are"
                f" expected at one scrape in {scrape_interval:g} s."
            )
            raise _Torn(Defect.PARTIAL, text)


def _check_revision(pool: TunedPool, present: set[str], measured: Measurements) -> None:
    for snapshot in (measured.start, measured.end):
        for pod in sorted(present):
            found = {
                sample.labels.get("revision", "")
                for sample in _select(snapshot, names.RUNTIME_CONFIG_INFO, pod=pod)
            }
            if found != {pool.revision}:
                text = (
                    f"Replica {pod} reports revision {', '.join(sorted(found)) or 'none'} within"
                    f" the window, the pool's is {pool.revision}."
                )
                raise _Torn(Defect.REVISION_MISMATCH, text)


def _kv_usage(replicas: Iterable[str], measured: Measurements) -> float:
    used = _by_pod(measured.kv_used_mean)
    shares = []
    for pod in sorted(replicas):
        if pod not in used:
            raise _missing(names.KV_TOKENS, pod)
        capacity = _one(measured.end, names.KV_TOKENS, pod, state="capacity")
        shares.append(100 * used[pod] / capacity)
    return max(shares)


def _workload(
    workload: TunedWorkload, replicas: frozenset[str], measured: Measurements
) -> WorkloadSample:
    name = workload.name
    budgets = [
        _one(measured.end, names.KNOB_VALUE, pod, workload=name, knob=BUDGET_KNOB)
        for pod in sorted(replicas)
    ]
    return WorkloadSample(
        name=name,
        budget=round(min(budgets)),
        objectives=tuple(
            _objective(name, objective, replicas, measured) for objective in workload.objectives
        ),
        completed=_completed(name, replicas, measured),
        reserved_mean=max(_each(measured.reserved_mean, names.RESERVED_TOKENS, name, replicas)),
        reserved_peak=max(_each(measured.reserved_peak, names.RESERVED_TOKENS, name, replicas)),
        waiting=sum(_each(measured.waiting_mean, names.WAITING_REQUESTS, name, replicas)),
        blocked=_blocked(name, replicas, measured),
    )


def _objective(
    workload: str, objective: Objective, replicas: frozenset[str], measured: Measurements
) -> ObjectiveCount:
    """The server creates both counters at zero with the settings, so a missing one is a fault."""
    counts = {"true": 0, "false": 0}
    for pod in sorted(replicas):
        for met in counts:
            labels = {"workload": workload, "objective": objective.label, "met": met}
            end = _one(measured.end, names.SLO_REQUESTS_TOTAL, pod, **labels)
            start = _one(measured.start, names.SLO_REQUESTS_TOTAL, pod, **labels)
            counts[met] += round(end - start)
    answers = measured.quantiles.get((objective.metric, objective.percentile), [])
    seconds = [s.value for s in answers if s.labels.get("workload") == workload]
    return ObjectiveCount(
        objective=objective,
        met=counts["true"],
        missed=counts["false"],
        observed_milliseconds=round(1000 * seconds[0]) if seconds else None,
    )


def _completed(workload: str, replicas: frozenset[str], measured: Measurements) -> int:
    grown = _growth(measured, names.REQUESTS_TOTAL, "outcome", workload, replicas)
    return sum(count for outcome, count in grown.items() if outcome not in NOT_COMPLETED)


def _blocked(workload: str, replicas: frozenset[str], measured: Measurements) -> Mapping[str, int]:
    return _growth(measured, names.ADMISSION_BLOCKED_TOTAL, "reason", workload, replicas)


def _growth(
    measured: Measurements, metric: str, label: str, workload: str, replicas: frozenset[str]
) -> dict[str, int]:
    """By `label`. Such a series may be born inside the window, at zero."""
    grown: dict[str, int] = {}
    for sign, snapshot in ((-1, measured.start), (1, measured.end)):
        for sample in _select(snapshot, metric, workload=workload):
            if sample.labels.get("pod") in replicas:
                key = sample.labels.get(label, "")
                grown[key] = grown.get(key, 0) + sign * round(sample.value)
    return grown


def _each(samples: Samples, metric: str, workload: str, replicas: frozenset[str]) -> list[float]:
    found = _by_pod([s for s in samples if s.labels.get("workload") == workload])
    for pod in sorted(replicas):
        if pod not in found:
            raise _missing(metric, pod, workload=workload)
    return [found[pod] for pod in sorted(replicas)]


def _one(snapshot: Samples, metric: str, pod: str, **labels: str) -> float:
    found = [sample.value for sample in _select(snapshot, metric, pod=pod, **labels)]
    if len(found) != 1:
        raise _missing(metric, pod, **labels)
    return found[0]


def _select(samples: Samples, metric: str, **labels: str) -> Iterator[Sample]:
    for sample in samples:
        wanted = {"__name__": metric, **labels}
        if all(sample.labels.get(key) == value for key, value in wanted.items()):
            yield sample


def _missing(metric: str, pod: str, **labels: str) -> _Torn:
    selector = ",".join(f'{key}="{value}"' for key, value in labels.items())
    text = f"Replica {pod} did not report {metric}{{{selector}}} throughout the window."
    return _Torn(Defect.MISSING, text)


def _loaded(snapshot: Samples) -> set[str]:
    return {
        sample.labels.get("pod", "")
        for sample in _select(snapshot, names.KV_TOKENS, state="capacity")
        if sample.value > 0
    }


def _pods(samples: Samples) -> set[str]:
    return {sample.labels.get("pod", "") for sample in samples}


def _by_pod(samples: Samples) -> dict[str, float]:
    return {sample.labels.get("pod", ""): sample.value for sample in samples}
