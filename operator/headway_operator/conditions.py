# SPDX-License-Identifier: Apache-2.0
"""The conditions of a pool: each a pure verdict on the facts, in words a user can act on."""

from dataclasses import dataclass

from headway_api.conditions import ConditionType, Reason
from headway_api.fields import TruthValue
from headway_operator.facts import Facts
from headway_operator.replicas import minimum_available
from headway_operator.resources import CONFIGMAPS, NETWORKPOLICIES, SERVICES

TUNERS = (ConditionType.METRICS_AVAILABLE, ConditionType.SLO_MET, ConditionType.TUNING)
"""Written by the tuner; until it has, they are present as Unknown."""

IN_FRONT = frozenset({SERVICES, NETWORKPOLICIES})
"""Replicas behind the wrong one of these are not available, however many run."""


@dataclass(frozen=True, slots=True)
class Verdict:
    status: TruthValue
    reason: Reason
    message: str


Verdicts = dict[ConditionType, Verdict]

NOT_EVALUATED = Verdict("Unknown", Reason.PENDING, "The tuner has not looked at this pool yet.")


def judge(facts: Facts) -> Verdicts:
    """Every condition the operator owns, in the order they are listed to users."""
    admitted = Verdict("True", Reason.NO_POLICY, "No TenantPolicy governs this namespace.")
    serving = available(facts)
    synced = runtime_config_synced(facts)
    return {
        ConditionType.READY: ready(admitted, serving, synced),
        ConditionType.ADMITTED: admitted,
        ConditionType.MODEL_CACHED: model_cached(facts),
        ConditionType.AVAILABLE: serving,
        ConditionType.PROGRESSING: progressing(facts),
        ConditionType.RUNTIME_CONFIG_SYNCED: synced,
    }


def refuse(message: str) -> Verdicts:
    """For a spec that cannot be carried out: what runs is left alone, and nothing new starts."""
    refused = Verdict("False", Reason.PENDING, f"The spec cannot be carried out: {message}")
    return {ConditionType.READY: refused, ConditionType.ADMITTED: refused}


def ready(admitted: Verdict, serving: Verdict, synced: Verdict) -> Verdict:
    """HOT values on their way, or a metrics provider that is down, do not make a pool unready."""
    for verdict in (admitted, serving):
        if verdict.status != "True":
            return verdict
    return synced if synced.status == "False" else Verdict("True", Reason.READY, serving.message)


def available(facts: Facts) -> Verdict:
    wanted, have = facts.pool.spec.replicas, facts.replicas.available
    served = f"{have} of {wanted} replicas serve"
    if facts.obstacle and facts.obstacle.resource in IN_FRONT:
        return Verdict("False", Reason.PENDING, facts.obstacle.message)
    if wanted == 0:
        return Verdict("True", Reason.SCALED_TO_ZERO, "No replicas are wanted.")
    if have >= minimum_available(wanted, facts.pool.spec.rollout):
        return Verdict("True", Reason.MINIMUM_REPLICAS_AVAILABLE, f"{served}.")
    if facts.obstacle or facts.decision.runtime is None:
        cause = facts.obstacle.message if facts.obstacle else facts.decision.held
        return Verdict("False", Reason.PENDING, f"{served}: {cause}")
    if facts.diagnosis:
        return Verdict("False", facts.diagnosis.reason, f"{served}: {facts.diagnosis.message}")
    return Verdict("False", Reason.PENDING, f"{served}; the others are starting.")


def progressing(facts: Facts) -> Verdict:
    replicas, wanted = facts.replicas, facts.pool.spec.replicas
    if facts.obstacle:
        return Verdict("False", Reason.PENDING, facts.obstacle.message)
    if not replicas.exists:
        return Verdict("Unknown", Reason.PENDING, "There is no Deployment yet.")
    cause = f": {facts.diagnosis.message}" if facts.diagnosis else "."
    state = f"{replicas.updated} of {wanted} replicas run the newest template{cause}"
    if replicas.deadline_exceeded and not facts.rolls:
        return Verdict("False", Reason.DEADLINE_EXCEEDED, f"No progress in time: {state}")
    if not _rolling(facts):
        return Verdict("False", Reason.COMPLETE, "Every replica runs the newest template.")
    enough = replicas.available >= minimum_available(wanted, facts.pool.spec.rollout)
    if enough and facts.diagnosis and facts.diagnosis.reason is Reason.UNSCHEDULABLE:
        return Verdict("True", Reason.INSUFFICIENT_CAPACITY_FOR_SURGE, state)
    return Verdict("True", Reason.ROLLING_OUT, state)


def runtime_config_synced(facts: Facts) -> Verdict:
    ack = facts.acknowledgement
    if facts.obstacle and facts.obstacle.resource is CONFIGMAPS:
        return Verdict("False", Reason.PENDING, facts.obstacle.message)
    if facts.decision.held:
        return Verdict("False", Reason.PENDING, facts.decision.held)
    if ack is None or (ack.ready == 0 and facts.pool.spec.replicas):
        return Verdict("Unknown", Reason.PENDING, "No replica is ready to take the values.")
    if ack.unreachable:
        return Verdict("Unknown", Reason.REPLICA_UNREACHABLE, ack.unreachable)
    if ack.rejections:
        refusals = "; ".join(f"replica {item.pod}: {item.field}" for item in ack.rejections)
        return Verdict("False", Reason.REPLICA_REJECTED, f"The values were refused: {refusals}")
    state = f"{ack.applied} of {ack.ready} ready replicas run with the newest values."
    if ack.pending:
        return Verdict("Unknown", Reason.APPLYING, state)
    return Verdict("True", Reason.SYNCED, state)


def model_cached(facts: Facts) -> Verdict:
    model = facts.pool.spec.model
    if model.source != "HuggingFace":
        return Verdict("True", Reason.NOT_APPLICABLE, f"The weights are mounted: {model.source}.")
    if facts.replicas.available:
        return Verdict("True", Reason.CACHED, f"{model.name} at {model.revision} is loaded.")
    token = model.token_secret_ref
    if token and facts.diagnosis and f'"{token.name}"' in facts.diagnosis.message:
        return Verdict("False", Reason.TOKEN_MISSING, facts.diagnosis.message)
    if facts.diagnosis or not facts.replicas.total:
        return Verdict("Unknown", Reason.PENDING, "No replica is loading the weights.")
    return Verdict("False", Reason.DOWNLOADING, f"{model.name} is being fetched and loaded.")


def _rolling(facts: Facts) -> bool:
    """While the Deployment controller lags behind, a roll that had begun still counts as going on.

    A change of the number of replicas alone is not a roll.
    """
    if facts.rolls or (facts.replicas.rolling and not facts.replicas.deadline_exceeded):
        return True
    before = {item.type: item.status for item in facts.pool.status.conditions or []}
    return facts.replicas.lagging and before.get(ConditionType.PROGRESSING) == "True"
