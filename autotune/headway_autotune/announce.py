# SPDX-License-Identifier: Apache-2.0
"""Kubernetes Events of the tuner: one for every move and one for every turn of its conditions.

What stays as it was is never announced again; the status tells it.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from headway_api.conditions import Condition, ConditionType
from headway_api.conditions import Reason as ConditionReason
from headway_api.events import EventReason
from headway_api.names import API_VERSION, INFERENCE_POOL, TUNER_MANAGER
from headway_autotune.conditions import conditions_of
from headway_autotune.decision import Decision
from headway_autotune.pool import TunedPool

NOTE_MAX = 1024


@dataclass(frozen=True, slots=True)
class Announcement:
    reason: EventReason
    message: str


def announcements(pool: TunedPool, decision: Decision) -> list[Announcement]:
    found = []
    if decision.move is not None:
        found.append(Announcement(EventReason.TUNING_RECOMMENDED, decision.move.message))
    for condition in conditions_of(pool, decision):
        last = pool.conditions.get(condition.type)
        reason = _turn(condition, last)
        if reason is not None:
            found.append(Announcement(reason, condition.message))
    return found


def _turn(now: Condition, last: Condition | None) -> EventReason | None:
    if now.status != "False":
        return None
    turned = last is None or last.status != "False"
    if now.type == ConditionType.METRICS_AVAILABLE:
        return EventReason.METRICS_UNAVAILABLE if turned else None
    if now.type != ConditionType.SLO_MET:
        return None
    if now.reason == ConditionReason.AT_BOUNDS:
        known = last is not None and last.reason == ConditionReason.AT_BOUNDS
        return None if known else EventReason.TUNING_AT_BOUNDS
    return EventReason.SLO_BREACHED if turned else None


def event_manifest(pool: TunedPool, announcement: Announcement, now: float) -> dict[str, Any]:
    moment = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{pool.name}.", "namespace": pool.namespace},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": INFERENCE_POOL,
            "namespace": pool.namespace,
            "name": pool.name,
            "uid": pool.uid,
        },
        "type": announcement.reason.type,
        "reason": announcement.reason.value,
        "message": announcement.message[:NOTE_MAX],
        "source": {"component": TUNER_MANAGER},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
