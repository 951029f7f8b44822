# SPDX-License-Identifier: Apache-2.0
"""The three conditions that the tuner owns: MetricsAvailable, SLOMet and Tuning.

They speak of the last window and of nothing else; a window that was not judged leaves SLOMet
Unknown instead of repeating an older answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from headway_api.conditions import Condition, ConditionType
from headway_api.conditions import Reason as ConditionReason
from headway_api.fields import TruthValue
from headway_autotune import words
from headway_autotune.decision import Decision, Reason
from headway_autotune.observation import Defect
from headway_autotune.pool import TunedPool

_ROLLOUT = {
    Reason.SPEC_NOT_OBSERVED,
    Reason.NO_REPLICAS,
    Reason.NOT_AVAILABLE,
    Reason.ROLLING_OUT,
    Reason.NOT_SYNCED,
    Reason.CAPACITY_UNKNOWN,
    Reason.REPLICAS_CHANGED,
    Reason.REVISION_MISMATCH,
}
_PROVIDER = {
    Defect.PROVIDER_UNKNOWN: ConditionReason.PROVIDER_UNKNOWN,
    Defect.PROVIDER_UNREACHABLE: ConditionReason.PROVIDER_UNREACHABLE,
}
_WINDOW_ONLY = {Defect.REPLICAS_CHANGED, Defect.REVISION_MISMATCH}


@dataclass(frozen=True, slots=True)
class State:
    status: TruthValue
    reason: str
    message: str


def conditions_of(pool: TunedPool, decision: Decision) -> list[Condition]:
    states = {
        ConditionType.METRICS_AVAILABLE: _metrics_available(pool, decision),
        ConditionType.SLO_MET: _slo_met(decision),
        ConditionType.TUNING: _tuning(decision),
    }
    return _stamped(pool, states, decision.time)


def disabled_conditions(pool: TunedPool, now: float) -> list[Condition]:
    unjudged = State("Unknown", ConditionReason.PENDING, "Autotune is disabled: nothing is judged.")
    message = "spec.autotune.mode is Disabled."
    states = {
        ConditionType.METRICS_AVAILABLE: unjudged,
        ConditionType.SLO_MET: unjudged,
        ConditionType.TUNING: State("False", ConditionReason.DISABLED, message),
    }
    return _stamped(pool, states, now)


def _metrics_available(pool: TunedPool, decision: Decision) -> State:
    """Where the provider was not asked, what it last was."""
    observation = decision.observation
    if observation is None:
        last = pool.conditions.get(ConditionType.METRICS_AVAILABLE)
        if last is None:
            return State("Unknown", ConditionReason.PENDING, "Nothing was measured yet.")
        return State(last.status, last.reason, last.message)
    gap = observation.gap
    if gap is not None and gap.defect not in _WINDOW_ONLY:
        reason = _PROVIDER.get(gap.defect, ConditionReason.STALE)
        return State("False", reason, gap.message)
    if gap is None and not any(sample.completed for sample in observation.workloads):
        text = "Samples are fresh; no request ended in the window."
        return State("True", ConditionReason.NO_TRAFFIC, text)
    return State("True", ConditionReason.FRESH, "Samples are fresh.")


def _slo_met(decision: Decision) -> State:
    """A workload without a request in the window has broken nothing and is passed over."""
    if decision.blocked is not None:
        text = f"The window was not judged: {decision.verdicts[0].message}"
        return State("Unknown", ConditionReason.PENDING, text)
    judged = {
        name: [judgement for judgement in judgements if judgement.count.total]
        for name, judgements in decision.judgements.items()
    }
    broken = [
        f"{name}: {words.attained(judgement)}"
        for name, judgements in judged.items()
        for judgement in judgements
        if judgement.met is False
    ]
    if broken:
        exhausted = [verdict for verdict in decision.verdicts if verdict.exhausted]
        if exhausted and decision.move is None:
            text = "; ".join(f"{verdict.workload}: {verdict.message}" for verdict in exhausted)
            return State("False", ConditionReason.AT_BOUNDS, text)
        return State("False", ConditionReason.BREACHED, "; ".join(broken) + ".")
    if not any(decision.judgements.values()):
        text = "No workload declares an objective."
        return State("Unknown", ConditionReason.NO_OBJECTIVES, text)
    met = [judgement.met for judgements in judged.values() for judgement in judgements]
    if not met or None in met:
        text = "Too few requests ended in the window to judge every objective."
        return State("Unknown", ConditionReason.INSUFFICIENT_SAMPLES, text)
    return State("True", ConditionReason.ALL_MET, "Every objective held in the last window.")


def _tuning(decision: Decision) -> State:
    if decision.blocked is not None:
        return _blocked(decision.blocked, decision.verdicts[0].message)
    if decision.move is not None:
        return State("True", ConditionReason.EVALUATING, decision.move.message)
    text = "; ".join(f"{verdict.workload}: {verdict.message}" for verdict in decision.verdicts)
    cooling = any(verdict.reason is Reason.COOLDOWN for verdict in decision.verdicts)
    return State("True", ConditionReason.COOLDOWN if cooling else ConditionReason.HELD, text)


def _blocked(reason: Reason, message: str) -> State:
    if reason is Reason.WARMING_UP:
        return State("True", ConditionReason.EVALUATING, message)
    if reason is Reason.PAUSED:
        return State("False", ConditionReason.HELD, message)
    if reason in _ROLLOUT:
        return State("False", ConditionReason.BLOCKED_BY_ROLLOUT, message)
    return State("False", ConditionReason.BLOCKED_BY_METRICS, message)


def _stamped(pool: TunedPool, states: Mapping[ConditionType, State], now: float) -> list[Condition]:
    return [
        Condition(
            type=kind,
            status=state.status,
            observed_generation=pool.generation,
            last_transition_time=_transition(pool, kind, state.status, now),
            reason=state.reason,
            message=state.message,
        )
        for kind, state in states.items()
    ]


def _transition(pool: TunedPool, kind: ConditionType, status: TruthValue, now: float) -> datetime:
    last = pool.conditions.get(kind)
    if last is not None and last.status == status:
        return last.last_transition_time
    return datetime.fromtimestamp(now, UTC)
