# SPDX-License-Identifier: Apache-2.0
"""Which Events a new status is worth: one per transition, none for a state that merely lasts."""

from collections.abc import Iterator
from dataclasses import dataclass

from headway_api.conditions import ConditionType, Reason
from headway_api.events import EventReason
from headway_operator.resources import Manifest

ON_REASON = {
    Reason.CACHED: EventReason.MODEL_CACHED,
    Reason.SCALED_TO_ZERO: EventReason.SCALED_TO_ZERO,
    Reason.DEADLINE_EXCEEDED: EventReason.ROLLOUT_DEADLINE_EXCEEDED,
    Reason.INSUFFICIENT_CAPACITY_FOR_SURGE: EventReason.INSUFFICIENT_CAPACITY_FOR_SURGE,
    Reason.REPLICA_REJECTED: EventReason.RUNTIME_CONFIG_REJECTED,
}


@dataclass(frozen=True, slots=True)
class PoolEvent:
    reason: EventReason
    message: str


def transitions(before: Manifest, after: Manifest) -> list[PoolEvent]:
    """`before` and `after` are statuses of the same pool. Ready only repeats others' reasons."""
    return list(_transitions(before, after))


def _transitions(before: Manifest, after: Manifest) -> Iterator[PoolEvent]:
    was, now = _by_type(before), _by_type(after)
    if _truth(now, ConditionType.ADMITTED) == "True" != _truth(was, ConditionType.ADMITTED):
        yield PoolEvent(EventReason.POOL_ADMITTED, now[ConditionType.ADMITTED]["message"])
    yield from _rollout(was, now)
    yield from _applied(before, after)
    for kind, condition in now.items():
        reason = condition["reason"]
        known = kind == ConditionType.READY or reason == was.get(kind, {}).get("reason")
        if reason in ON_REASON and not known:
            yield PoolEvent(ON_REASON[reason], condition["message"])


def _rollout(was: dict[str, Manifest], now: dict[str, Manifest]) -> Iterator[PoolEvent]:
    rolled = _truth(was, ConditionType.PROGRESSING) == "True"
    rolls = _truth(now, ConditionType.PROGRESSING) == "True"
    if rolls and not rolled:
        message = now[ConditionType.PROGRESSING]["message"]
        yield PoolEvent(EventReason.ROLLOUT_STARTED, message)
    elif rolled and now.get(ConditionType.PROGRESSING, {}).get("reason") == Reason.COMPLETE:
        message = now[ConditionType.PROGRESSING]["message"]
        yield PoolEvent(EventReason.ROLLOUT_COMPLETED, message)


def _applied(before: Manifest, after: Manifest) -> Iterator[PoolEvent]:
    """A revision is announced when every ready replica has come to run with it."""
    old, new = before.get("runtimeConfig") or {}, after.get("runtimeConfig") or {}
    if not new.get("appliedReplicas") or new["pendingReplicas"]:
        return
    in_force = old.get("appliedReplicas") and not old.get("pendingReplicas")
    if not in_force or old["revision"] != new["revision"]:
        count = new["appliedReplicas"]
        message = f"Revision {new['revision']} is in force on {count} replicas."
        yield PoolEvent(EventReason.RUNTIME_CONFIG_APPLIED, message)


def _by_type(status: Manifest) -> dict[str, Manifest]:
    return {item["type"]: item for item in status.get("conditions") or []}


def _truth(conditions: dict[str, Manifest], kind: ConditionType) -> str | None:
    return conditions.get(kind, {}).get("status")
