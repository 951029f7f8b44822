# SPDX-License-Identifier: Apache-2.0
"""From a decision to the part of the pool's status that the tuner owns.

Server-side apply takes away what its manager leaves out, so the document is always whole: a
recommendation and the history are written again until something replaces them. Pure.
"""

from datetime import UTC, datetime
from typing import Any

from headway_api.batching import KnobValues
from headway_api.conditions import Condition, ConditionType
from headway_api.fields import TruthValue
from headway_api.inferencepool_status import (
    HISTORY_MAX,
    AutotuneStatus,
    InferencePoolStatus,
    ObjectiveStatus,
    WorkloadStatus,
)
from headway_api.inferencepool_status import Decision as HistoryEntry
from headway_api.names import API_VERSION, INFERENCE_POOL
from headway_autotune.attainment import Judgement
from headway_autotune.conditions import conditions_of, disabled_conditions
from headway_autotune.decision import Decision, Reason, Verdict
from headway_autotune.pool import CHANGES, TunedPool, TunedWorkload
from headway_autotune.words import PARAMETER

MESSAGE_MAX = 1024
_PASSING = {Reason.COOLDOWN, Reason.RECOMMENDATION_STANDS, Reason.OTHER_CHANGE_FIRST}


def status_document(pool: TunedPool, decision: Decision) -> dict[str, Any]:
    return _document(
        pool,
        workloads=[_workload(workload, decision) for workload in pool.workloads],
        history=next_history(pool, decision),
        conditions=conditions_of(pool, decision),
    )


def disabled_document(pool: TunedPool, now: float) -> dict[str, Any] | None:
    """Withdraws recommendations and keeps the history; None when the status says so already."""
    last = pool.conditions.get(ConditionType.TUNING)
    conditions = disabled_conditions(pool, now)
    if last is not None and last == conditions[-1]:
        return None
    return _document(pool, workloads=[], history=list(pool.history), conditions=conditions)


def next_history(pool: TunedPool, decision: Decision) -> list[HistoryEntry]:
    """A move is always recorded; a hold only when its reason is news for its workload, and never
    one that merely waits. A window that could not be judged is told by the conditions."""
    history = list(pool.history)
    if decision.move is not None:
        history.append(_entry(decision.move, decision.time))
    elif decision.blocked is None:
        newest = {entry.workload_name: entry.reason for entry in history}
        history += [
            _entry(verdict, decision.time)
            for verdict in decision.verdicts
            if verdict.reason not in _PASSING and newest.get(verdict.workload) != verdict.reason
        ]
    return _trimmed(history)


def _trimmed(history: list[HistoryEntry]) -> list[HistoryEntry]:
    """Old holds go first and a workload's newest change never, because cooldown is read from it."""
    kept = list(history)
    while len(kept) > HISTORY_MAX:
        newest = {e.workload_name: i for i, e in enumerate(kept) if e.action in CHANGES}
        holds = (i for i, e in enumerate(kept) if e.action not in CHANGES)
        older = (i for i, e in enumerate(kept) if newest.get(e.workload_name) != i)
        victim = next(holds, None)
        del kept[next(older) if victim is None else victim]
    return kept


def _entry(verdict: Verdict, now: float) -> HistoryEntry:
    return HistoryEntry(
        time=datetime.fromtimestamp(now, UTC),
        workload_name=verdict.workload,
        action=verdict.action.value,
        parameter=PARAMETER,
        from_=verdict.old,
        to=verdict.new,
        reason=verdict.reason,
        message=verdict.message[:MESSAGE_MAX],
    )


def _workload(workload: TunedWorkload, decision: Decision) -> WorkloadStatus:
    tokens = recommendation(workload, decision)
    measured = decision.observation if decision.blocked is None else None
    return WorkloadStatus(
        name=workload.name,
        recommended=KnobValues(max_batch_total_tokens=tokens) if tokens else None,
        objectives=_objectives(workload, decision),
        sample_count=measured.sample(workload.name).completed if measured else None,
        kv_usage_percent=min(100, round(measured.kv_usage_percent)) if measured else None,
        last_evaluation_time=datetime.fromtimestamp(decision.time, UTC),
    )


def recommendation(workload: TunedWorkload, decision: Decision) -> int | None:
    """Tokens; the last recommendation stands until another replaces it."""
    move = decision.move
    if move is not None and move.workload == workload.name:
        return move.new
    return workload.recommended


def _objectives(workload: TunedWorkload, decision: Decision) -> list[ObjectiveStatus]:
    judgements = {
        judgement.count.objective: judgement
        for judgement in decision.judgements.get(workload.name, ())
    }
    return [
        ObjectiveStatus(
            metric=objective.metric,
            percentile=objective.percentile,
            threshold_milliseconds=objective.threshold_milliseconds,
            observed_milliseconds=_observed(judgements.get(objective)),
            met=_met(judgements.get(objective)),
        )
        for objective in workload.objectives
    ]


def _observed(judgement: Judgement | None) -> int | None:
    return judgement.count.observed_milliseconds if judgement else None


def _met(judgement: Judgement | None) -> TruthValue:
    if judgement is None or judgement.met is None:
        return "Unknown"
    return "True" if judgement.met else "False"


def _document(
    pool: TunedPool,
    *,
    workloads: list[WorkloadStatus],
    history: list[HistoryEntry],
    conditions: list[Condition],
) -> dict[str, Any]:
    """Naming the uid makes the API server refuse the status of a pool that was replaced since."""
    status = InferencePoolStatus(
        workloads=workloads, autotune=AutotuneStatus(history=history), conditions=conditions
    )
    return {
        "apiVersion": API_VERSION,
        "kind": INFERENCE_POOL,
        "metadata": {"namespace": pool.namespace, "name": pool.name, "uid": pool.uid},
        "status": status.model_dump(mode="json", by_alias=True, exclude_none=True),
    }
