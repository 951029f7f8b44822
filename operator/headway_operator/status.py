# SPDX-License-Identifier: Apache-2.0
"""The part of a pool's status that the operator owns.

It is written whole or not at all: what is owned of the live status is cut out and compared, so
that a field that no longer applies goes, and nothing is written while nothing has changed.
"""

from datetime import UTC, datetime
from typing import Any

from headway_api.conditions import ConditionType
from headway_operator.build.metadata import runtime_name, selector
from headway_operator.build.service import service_url
from headway_operator.conditions import NOT_EVALUATED, TUNERS, Verdict, Verdicts
from headway_operator.facts import Facts
from headway_operator.resources import Manifest, Manifests

OWNED_FIELDS = (
    "observedGeneration",
    "replicas",
    "readyReplicas",
    "updatedReplicas",
    "availableReplicas",
    "selector",
    "url",
    "engine",
    "runtimeConfig",
)
MESSAGE_LIMIT = 1024
OWNED_WORKLOAD_FIELDS = ("name", "effective", "source")


def build_status(facts: Facts, verdicts: Verdicts, live: Manifest, now: datetime) -> Manifest:
    """`live` is the status as read; times of conditions whose status stays are taken from it."""
    pool, decision, replicas = facts.pool, facts.decision, facts.replicas
    engine = {"image": decision.image, "kvCacheCapacityTokens": facts.capacity}
    status = {
        "observedGeneration": pool.generation,
        "replicas": replicas.total,
        "readyReplicas": replicas.ready,
        "updatedReplicas": replicas.updated,
        "availableReplicas": replicas.available,
        "selector": ",".join(f"{key}={value}" for key, value in sorted(selector(pool).items())),
        "url": service_url(pool),
        "engine": _set(engine),
        "runtimeConfig": _runtime_config(facts, now),
        "workloads": owned(live).get("workloads", []) if decision.held else _workloads(facts),
        "conditions": build_conditions(verdicts, live, pool.generation, now),
    }
    return {name: value for name, value in status.items() if value not in ({}, [])}


def refused_status(verdicts: Verdicts, live: Manifest, generation: int, now: datetime) -> Manifest:
    """Everything as it was, with these verdicts in place of the same conditions."""
    kept = owned(live)
    fresh = build_conditions(verdicts, live, generation, now)
    types = {item["type"] for item in fresh}
    old = [item for item in kept.get("conditions", []) if item["type"] not in types]
    return kept | {"observedGeneration": generation, "conditions": fresh + old}


def build_conditions(
    verdicts: Verdicts, live: Manifest, generation: int, now: datetime
) -> Manifests:
    before = {item["type"]: item for item in live.get("conditions") or []}
    waiting = {kind: NOT_EVALUATED for kind in TUNERS if _ours_or_absent(before.get(kind))}
    return [
        _condition(kind, verdict, before.get(kind), generation, now)
        for kind, verdict in (verdicts | waiting).items()
    ]


def owned(live: Manifest) -> Manifest:
    """What of a live status the operator has written."""
    conditions = [
        item
        for item in live.get("conditions") or []
        if item["type"] not in TUNERS or _ours_or_absent(item)
    ]
    workloads = [
        {name: item[name] for name in OWNED_WORKLOAD_FIELDS if name in item}
        for item in live.get("workloads") or []
    ]
    kept = {name: live[name] for name in OWNED_FIELDS if name in live}
    ours = [item for item in workloads if len(item) > 1]
    lists = {"workloads": ours, "conditions": conditions}
    return kept | {name: items for name, items in lists.items() if items}


def differs(live: Manifest, desired: Manifest) -> bool:
    return _by_key(owned(live)) != _by_key(desired)


def _by_key(status: Manifest) -> Manifest:
    """Server-side apply may keep list items in an order of its own."""
    return status | {
        "workloads": {item["name"]: item for item in status.get("workloads", [])},
        "conditions": {item["type"]: item for item in status.get("conditions", [])},
    }


def _condition(
    kind: ConditionType, verdict: Verdict, before: Manifest | None, generation: int, now: datetime
) -> Manifest:
    same = before is not None and before["status"] == verdict.status
    return {
        "type": str(kind),
        "status": verdict.status,
        "observedGeneration": generation,
        "lastTransitionTime": before["lastTransitionTime"] if before and same else _text(now),
        "reason": str(verdict.reason),
        "message": verdict.message[:MESSAGE_LIMIT],
    }


def _ours_or_absent(condition: Manifest | None) -> bool:
    return condition is None or condition["message"] == NOT_EVALUATED.message


def _workloads(facts: Facts) -> Manifests:
    return [
        {
            "name": workload.runtime.name,
            "effective": workload.values(facts.capacity).model_dump(
                mode="json", by_alias=True, exclude_none=True
            ),
            "source": workload.source,
        }
        for workload in facts.decision.workloads
    ]


def _runtime_config(facts: Facts, now: datetime) -> Manifest:
    ack, runtime = facts.acknowledgement, facts.decision.runtime
    if ack is None or runtime is None:
        return {}
    before = facts.pool.status.runtime_config
    last = before.last_applied_time if before else None
    known = before if before and before.revision == runtime.revision else None
    applied, pending = ack.applied, ack.pending
    if ack.unreachable:
        applied = min(ack.ready, known.applied_replicas or 0) if known else 0
        pending = ack.ready - applied
    elif ack.ready and not pending:
        settled = known and known.pending_replicas == 0 and (known.applied_replicas or 0) >= applied
        last = last if settled and last else now
    return _set(
        {
            "revision": runtime.revision,
            "configMapName": runtime_name(facts.pool),
            "appliedReplicas": applied,
            "pendingReplicas": pending,
            "lastAppliedTime": _text(last) if last else None,
        }
    )


def _set(fields: dict[str, Any]) -> Manifest:
    return {name: value for name, value in fields.items() if value is not None}


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
