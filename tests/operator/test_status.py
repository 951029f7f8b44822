# SPDX-License-Identifier: Apache-2.0
"""Conditions, status and events as pure functions of the facts."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headway_api.conditions import ConditionType, Reason
from headway_api.events import EventReason
from headway_api.inferencepool import InferencePoolStatus
from headway_operator.acknowledgement import Acknowledgement, Rejection
from headway_operator.conditions import judge, refuse
from headway_operator.diagnosis import Diagnosis
from headway_operator.facts import Facts, Obstacle
from headway_operator.replicas import Replicas, minimum_available, read_replicas
from headway_operator.resources import CONFIGMAPS, DEPLOYMENTS, SERVICES, Manifest
from headway_operator.status import build_status, differs, owned, refused_status
from headway_operator.transitions import transitions
from tests.operator.given import decision, facts, pool

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=5)
NONE = Replicas(exists=True)
TWO = pool({"replicas": 2})
CRASH = Diagnosis(Reason.CRASH_LOOPING, "pod chat-x exited with code 3: boom")
NO_GPU = Diagnosis(Reason.UNSCHEDULABLE, "pod chat-x: Insufficient nvidia.com/gpu")
ROLLING = Replicas(exists=True, total=2, updated=1, ready=1, available=1, rolling=True)


def status_of(known: Facts, live: Manifest | None = None, now: datetime = NOON) -> Manifest:
    return build_status(known, judge(known), live or {}, now)


def conditions(known: Facts) -> dict[str, tuple[str, str]]:
    return {str(kind): (item.status, str(item.reason)) for kind, item in judge(known).items()}


CASES: list[tuple[str, Facts, str, tuple[str, str]]] = [
    ("serves", facts(), "Available", ("True", "MinimumReplicasAvailable")),
    ("serves", facts(), "Ready", ("True", "Ready")),
    ("starts", facts(replicas=NONE), "Available", ("False", "Pending")),
    ("crash", facts(replicas=NONE, diagnosis=CRASH), "Available", ("False", "CrashLooping")),
    ("crash", facts(replicas=NONE, diagnosis=CRASH), "Ready", ("False", "CrashLooping")),
    ("no gpu", facts(replicas=NONE, diagnosis=NO_GPU), "Available", ("False", "Unschedulable")),
    (
        "zero wanted",
        facts(pool({"replicas": 0}), replicas=NONE, acknowledgement=Acknowledgement(ready=0)),
        "Available",
        ("True", "ScaledToZero"),
    ),
    (
        "zero wanted",
        facts(pool({"replicas": 0}), replicas=NONE, acknowledgement=Acknowledgement(ready=0)),
        "RuntimeConfigSynced",
        ("True", "Synced"),
    ),
    ("one of two", facts(TWO), "Available", ("False", "Pending")),
    (
        "one of two will do",
        facts(pool({"replicas": 2, "rollout": {"maxUnavailable": 1}})),
        "Available",
        ("True", "MinimumReplicasAvailable"),
    ),
    (
        "a roll whose new pods crash leaves the old ones available",
        facts(replicas=ROLLING, diagnosis=CRASH),
        "Available",
        ("True", "MinimumReplicasAvailable"),
    ),
    ("rolls", facts(replicas=ROLLING), "Progressing", ("True", "RollingOut")),
    ("begins to roll", facts(rolls=True), "Progressing", ("True", "RollingOut")),
    ("settled", facts(), "Progressing", ("False", "Complete")),
    (
        "no room for the surge",
        facts(replicas=ROLLING, diagnosis=NO_GPU),
        "Progressing",
        ("True", "InsufficientCapacityForSurge"),
    ),
    (
        "too slow",
        facts(replicas=Replicas(exists=True, available=1, deadline_exceeded=True)),
        "Progressing",
        ("False", "DeadlineExceeded"),
    ),
    (
        "nobody to tell",
        facts(replicas=NONE, acknowledgement=Acknowledgement(ready=0)),
        "RuntimeConfigSynced",
        ("Unknown", "Pending"),
    ),
    (
        "on its way",
        facts(acknowledgement=Acknowledgement(ready=2, applied=1)),
        "RuntimeConfigSynced",
        ("Unknown", "Applying"),
    ),
    (
        "on its way",
        facts(acknowledgement=Acknowledgement(ready=2, applied=1)),
        "Ready",
        ("True", "Ready"),
    ),
    (
        "refused",
        facts(acknowledgement=Acknowledgement(1, 0, (Rejection("chat-x", "stable.workloads"),))),
        "Ready",
        ("False", "ReplicaRejected"),
    ),
    (
        "provider down",
        facts(acknowledgement=Acknowledgement(1, unreachable="no route")),
        "RuntimeConfigSynced",
        ("Unknown", "ReplicaUnreachable"),
    ),
    (
        "provider down",
        facts(acknowledgement=Acknowledgement(1, unreachable="no route")),
        "Ready",
        ("True", "Ready"),
    ),
    (
        "somebody else's Service",
        facts(obstacle=Obstacle(SERVICES, "Conflict")),
        "Available",
        ("False", "Pending"),
    ),
    (
        "an update that is refused while the old replicas serve",
        facts(obstacle=Obstacle(DEPLOYMENTS, "quota")),
        "Available",
        ("True", "MinimumReplicasAvailable"),
    ),
    (
        "an update that is refused while the old replicas serve",
        facts(obstacle=Obstacle(DEPLOYMENTS, "quota")),
        "Progressing",
        ("False", "Pending"),
    ),
    (
        "somebody else's ConfigMap",
        facts(obstacle=Obstacle(CONFIGMAPS, "Conflict")),
        "RuntimeConfigSynced",
        ("False", "Pending"),
    ),
    (
        "mounted weights",
        facts(pool({"model": {"name": "m", "source": "Image", "image": {"reference": "i"}}})),
        "ModelCached",
        ("True", "NotApplicable"),
    ),
    (
        "weights on their way",
        facts(replicas=Replicas(True, 1)),
        "ModelCached",
        ("False", "Downloading"),
    ),
]


@pytest.mark.parametrize(("known", "kind", "verdict"), [row[1:] for row in CASES], ids=str)
def test_condition(known: Facts, kind: str, verdict: tuple[str, str]) -> None:
    assert conditions(known)[kind] == verdict


def test_a_roll_that_had_begun_goes_on_while_the_controller_lags() -> None:
    progress = {"type": "Progressing", "reason": "RollingOut", "message": "m"}
    rolling = {"conditions": [{**progress, "status": "True", "lastTransitionTime": NOON}]}
    lagging = Replicas(exists=True, total=1, updated=1, ready=1, available=1, lagging=True)
    assert conditions(facts(pool({}, rolling), replicas=lagging))["Progressing"][0] == "True"
    scaled = facts(pool({}), replicas=lagging)
    assert conditions(scaled)["Progressing"] == ("False", "Complete")


@pytest.mark.parametrize(
    ("replicas", "unavailable", "minimum"),
    [(3, 0, 3), (3, 1, 2), (3, "25%", 3), (4, "25%", 3), (1, 1, 1), (2, "100%", 1)],
)
def test_how_many_must_serve(replicas: int, unavailable: Any, minimum: int) -> None:
    rollout = pool({"rollout": {"maxUnavailable": unavailable}}).spec.rollout
    assert minimum_available(replicas, rollout) == minimum


def test_the_status_is_one_the_api_takes() -> None:
    status = status_of(facts(capacity=4096))
    InferencePoolStatus.model_validate(status, extra="forbid")
    assert {item["type"] for item in status["conditions"]} == {
        *(str(kind) for kind in judge(facts())),
        "MetricsAvailable",
        "SLOMet",
        "Tuning",
    }


def test_an_unchanged_pool_has_an_unchanged_status_at_any_time() -> None:
    first = status_of(facts(capacity=4096))
    seen = facts(pool({}, first), capacity=4096)
    assert status_of(seen, first, LATER) == first
    assert not differs(first, status_of(seen, first, LATER))


def test_the_order_of_the_live_lists_makes_no_difference() -> None:
    status = status_of(facts())
    shuffled = status | {"conditions": status["conditions"][::-1]}
    assert not differs(shuffled, status)


def test_a_transition_time_moves_only_with_the_status() -> None:
    first = status_of(facts())
    crashed = status_of(facts(replicas=NONE, diagnosis=CRASH), first, LATER)
    again = status_of(facts(replicas=NONE, diagnosis=NO_GPU), crashed, LATER + timedelta(hours=1))
    times = {
        item["type"]: (item["lastTransitionTime"], item["reason"]) for item in again["conditions"]
    }
    assert times["Available"] == ("2030-01-01T12:05:00Z", "Unschedulable")
    assert times["Admitted"] == ("2030-01-01T12:00:00Z", "NoPolicy")


def test_a_field_that_no_longer_applies_is_a_difference() -> None:
    with_capacity = status_of(facts(capacity=4096))
    assert differs(with_capacity, status_of(facts()))


def test_what_the_tuner_wrote_is_not_the_operators() -> None:
    mine = status_of(facts())
    tuned = {
        **mine,
        "autotune": {"history": []},
        "workloads": [
            {**mine["workloads"][0], "recommended": {"maxBatchTotalTokens": 1}, "sampleCount": 9},
            {"name": "vanished", "sampleCount": 3},
        ],
        "conditions": [
            item | ({"message": "by the tuner"} if item["type"] == "SLOMet" else {})
            for item in mine["conditions"]
        ],
    }
    kept = owned(tuned)
    assert "autotune" not in kept
    assert kept["workloads"] == mine["workloads"]
    assert "SLOMet" not in {item["type"] for item in kept["conditions"]}
    assert not differs(tuned, status_of(facts(), tuned))
    assert "SLOMet" not in {item["type"] for item in status_of(facts(), tuned)["conditions"]}


def test_a_refused_spec_keeps_what_was_known() -> None:
    before = status_of(facts(capacity=4096))
    after = refused_status(refuse("model: no"), before, 4, LATER)
    states = {item["type"]: item for item in after["conditions"]}
    assert (states["Ready"]["status"], states["Ready"]["observedGeneration"]) == ("False", 4)
    assert "model: no" in states["Admitted"]["message"]
    assert states["Available"] == {item["type"]: item for item in before["conditions"]}["Available"]
    assert after["engine"] == before["engine"]
    assert after["observedGeneration"] == 4
    assert refused_status(refuse("model: no"), after, 4, LATER + timedelta(hours=1)) == after


def applied_at(known: Facts, before: Manifest, now: datetime) -> Manifest:
    found: Manifest = status_of(known, before, now)["runtimeConfig"]
    return found


def test_the_time_of_full_acknowledgement_is_that_of_the_last_replica() -> None:
    two = {"replicas": 2}
    half = applied_at(facts(TWO, acknowledgement=Acknowledgement(2, 1)), {}, NOON)
    assert "lastAppliedTime" not in half
    assert (half["appliedReplicas"], half["pendingReplicas"]) == (1, 1)
    whole = Acknowledgement(2, 2)
    seen = pool(two, {"runtimeConfig": half})
    full = applied_at(facts(seen, acknowledgement=whole), {}, LATER)
    assert full["lastAppliedTime"] == "2030-01-01T12:05:00Z"
    kept = facts(pool(two, {"runtimeConfig": full}), acknowledgement=whole)
    assert applied_at(kept, {}, LATER + timedelta(hours=1)) == full


def test_a_silent_provider_leaves_the_last_counts() -> None:
    known = applied_at(facts(), {}, NOON)
    silent = Acknowledgement(1, unreachable="no route")
    seen = pool({}, {"runtimeConfig": known})
    assert applied_at(facts(seen, acknowledgement=silent), {}, LATER) == known


def test_the_values_of_a_held_pool_stay_in_its_status() -> None:
    before = status_of(facts())
    configmap = decision(pool()).children[0].manifest
    held = decision(pool(), classes={}, live=configmap)
    after = status_of(facts(pool({}, before), decision=held), before)
    assert after["workloads"] == before["workloads"]
    assert conditions(facts(decision=held))["RuntimeConfigSynced"] == ("False", "Pending")


def reasons(before: Manifest, after: Manifest) -> list[EventReason]:
    return [event.reason for event in transitions(before, after)]


def test_events_of_a_life() -> None:
    created = status_of(facts(replicas=NONE, rolls=True, acknowledgement=Acknowledgement(0)))
    assert reasons({}, created) == [EventReason.POOL_ADMITTED, EventReason.ROLLOUT_STARTED]
    served = status_of(facts(pool({}, created)), created)
    assert reasons(created, served) == [
        EventReason.ROLLOUT_COMPLETED,
        EventReason.RUNTIME_CONFIG_APPLIED,
        EventReason.MODEL_CACHED,
    ]
    assert reasons(served, served) == []
    refused = Acknowledgement(1, 0, (Rejection("chat-x", "stable"),))
    rejected = status_of(facts(acknowledgement=refused), served)
    assert reasons(served, rejected) == [EventReason.RUNTIME_CONFIG_REJECTED]
    assert EventReason.RUNTIME_CONFIG_REJECTED.type == "Warning"
    zero = facts(pool({"replicas": 0}), replicas=NONE, acknowledgement=Acknowledgement(0))
    assert EventReason.SCALED_TO_ZERO in reasons(served, status_of(zero, served))


def test_reading_a_deployment() -> None:
    assert read_replicas(None) == Replicas()
    fresh = read_replicas({"metadata": {"generation": 1}})
    assert (fresh.rolling, fresh.lagging) == (True, True)
    progress = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
    late = read_replicas(
        {
            "metadata": {"generation": 2},
            "status": {"observedGeneration": 2, "conditions": [progress, failure]},
        }
    )
    assert (late.rolling, late.lagging, late.deadline_exceeded) == (False, False, True)
    assert late.create_failure == "exceeded quota"


def test_every_reason_is_one_of_the_api() -> None:
    for _, known, _, _ in CASES:
        assert all(isinstance(item.reason, Reason) for item in judge(known).values())
        assert all(isinstance(kind, ConditionType) for kind in judge(known))
