# SPDX-License-Identifier: Apache-2.0
"""Reading the cluster: why a pod fails, which replica runs with what, what the watch has shown."""

from typing import Any

import pytest

from headway_api.conditions import Reason
from headway_operator.acknowledgement import (
    Rejection,
    acknowledge,
    replicas_query,
    smallest_capacity,
)
from headway_operator.diagnosis import diagnose
from headway_operator.pool import InvalidSpec, PoolKey, read_pool
from headway_operator.replicas import serving
from headway_operator.resources import Manifest, Manifests
from headway_operator.samples import Sample
from headway_operator.sightings import Sightings
from tests.operator.given import manifest


def pod(name: str, **container: Any) -> Manifest:
    statuses = [{"name": "server", "image": "i:1", "ready": False, **container}]
    return {"metadata": {"name": name}, "status": {"containerStatuses": statuses}}


def ended(code: int, message: str | None = None, reason: str = "Error") -> Manifest:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


def waiting(reason: str, message: str = "") -> Manifest:
    return {"state": {"waiting": {"reason": reason, "message": message}}}


def pending(name: str, words: str) -> Manifest:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {
        "metadata": {"name": name},
        "status": {"conditions": [{**condition, "message": words}]},
    }


LOG = "starting\nheadway-server: model folder /models/x has no config.json: mount a model\n\n"
PROBLEMS: list[tuple[Manifest, Reason, str]] = [
    (
        pod("a", state=ended(1, LOG)),
        Reason.MODEL_LOAD_FAILED,
        "pod a exited with code 1: headway-server: model folder /models/x has no config.json:"
        " mount a model",
    ),
    (
        pod("a", state=ended(1, "headway-server: port 8000 is taken")),
        Reason.CRASH_LOOPING,
        "pod a exited with code 1: headway-server: port 8000 is taken",
    ),
    (
        pod("a", state={"running": {}}, lastState=ended(3, "Traceback\nKeyError: 'x'")),
        Reason.CRASH_LOOPING,
        "pod a exited with code 3: KeyError: 'x'",
    ),
    (
        pod("a", **waiting("CrashLoopBackOff"), lastState=ended(137, None, "OOMKilled")),
        Reason.CRASH_LOOPING,
        "pod a exited with code 137 (OOMKilled) and wrote nothing",
    ),
    (
        pod("a", **waiting("CrashLoopBackOff"), lastState=ended(0, "bye", "Completed")),
        Reason.CRASH_LOOPING,
        "pod a exited with code 0: bye",
    ),
    (
        pod("a", **waiting("ErrImagePull", "not found")),
        Reason.IMAGE_PULL_FAILED,
        "pod a cannot pull i:1: not found",
    ),
    (
        pod("a", **waiting("ImagePullBackOff", 'Back-off pulling image "i:1": ErrImagePull: no')),
        Reason.IMAGE_PULL_FAILED,
        "pod a cannot pull i:1: no",
    ),
    (
        pod("a", **waiting("CreateContainerConfigError", 'secret "t" not found')),
        Reason.PENDING,
        'pod a cannot start: secret "t" not found',
    ),
    (pending("a", "0/3 nodes"), Reason.UNSCHEDULABLE, "pod a: 0/3 nodes"),
]


@pytest.mark.parametrize(("broken", "reason", "message"), PROBLEMS)
def test_diagnosis(broken: Manifest, reason: Reason, message: str) -> None:
    found = diagnose([broken], None)
    assert found is not None
    assert (found.reason, found.message) == (reason, message)


@pytest.mark.parametrize(
    "fine",
    [
        pod("a", state={"running": {}}),
        pod("a", state={"running": {}}, ready=True, lastState=ended(1, "once")),
        pod("a", **waiting("ContainerCreating")),
        {"metadata": {"name": "a"}},
        {**pod("a", state=ended(1, "x")), "metadata": {"name": "a", "deletionTimestamp": "t"}},
    ],
)
def test_no_diagnosis(fine: Manifest) -> None:
    assert diagnose([fine], None) is None


def test_a_crash_tells_more_than_a_pod_that_waits_and_order_is_by_name() -> None:
    pods = [pending("a", "words"), pod("c", state=ended(2, "c")), pod("b", state=ended(2, "b"))]
    found = diagnose(pods, "quota")
    assert found is not None
    assert found.message == "pod b exited with code 2: b"


def test_pods_that_may_not_be_created_read_the_same_at_every_try() -> None:
    messages = {
        diagnosis.message
        for name in ("chat-abc12", "chat-def34")
        if (diagnosis := diagnose([], f'pods "{name}" is forbidden: exceeded quota: q'))
    }
    assert messages == {"pods cannot be created: pods is forbidden: exceeded quota: q"}


def test_a_pod_on_its_way_out_does_not_serve() -> None:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    pods: Manifests = [
        {"metadata": {"name": "b"}, "status": ready},
        {"metadata": {"name": "a"}, "status": ready},
        {"metadata": {"name": "c", "deletionTimestamp": "t"}, "status": ready},
        {"metadata": {"name": "d"}, "status": {"conditions": []}},
        {"metadata": {"name": "e"}},
    ]
    assert serving(pods) == ["a", "b"]


def sample(name: str, pod: str, value: float = 1, **labels: str) -> Sample:
    return Sample({"__name__": f"headway_{name}", "pod": pod, **labels}, value, 0.0)


def test_only_ready_replicas_with_this_very_revision_have_acknowledged() -> None:
    samples = [
        sample("runtime_config_info", "a", revision="new"),
        sample("runtime_config_info", "b", revision="old"),
        sample("runtime_config_info", "gone", revision="new"),
        sample("runtime_config_info", "c", value=0, revision="new"),
        sample("runtime_config_rejected", "b", revision="new", field="stable.workloads"),
        sample("runtime_config_rejected", "a", revision="old", field="x"),
    ]
    found = acknowledge("new", ["a", "b", "c"], samples)
    assert (found.ready, found.applied, found.pending) == (3, 1, 2)
    assert found.rejections == (Rejection("b", "stable.workloads"),)


def test_the_smallest_ready_replica_sets_the_capacity() -> None:
    samples = [
        sample("kv_tokens", "a", 900, state="capacity"),
        sample("kv_tokens", "b", 700, state="capacity"),
        sample("kv_tokens", "b", 5, state="used"),
        sample("kv_tokens", "gone", 100, state="capacity"),
    ]
    assert smallest_capacity(["a", "b"], samples) == 700
    assert smallest_capacity(["c"], samples) is None


def test_one_query_reads_a_pool_and_no_other() -> None:
    query = replicas_query("team-a", "chat")
    assert query.endswith(',namespace="team-a",pool="chat"}')
    assert "headway_kv_tokens" in query


def seen(**status: Any) -> Manifest:
    return manifest({"workloads": [{"name": "w", "className": "chat"}]}, status)


def test_an_echo_of_the_operators_own_status_is_no_change() -> None:
    sightings = Sightings()
    assert sightings.note(seen())
    assert not sightings.note(seen(replicas=3, conditions=[{"type": "Ready"}]))


def test_what_the_tuner_recommends_is_a_change() -> None:
    sightings = Sightings()
    sightings.note(seen())
    advice = [{"name": "w", "recommended": {"maxBatchTotalTokens": 9000}}]
    assert sightings.note(seen(workloads=advice))
    assert not sightings.note(seen(workloads=[{**advice[0], "sampleCount": 7}]))
    assert sightings.note(
        seen(workloads=[{"name": "w", "recommended": {"maxBatchTotalTokens": 1}}])
    )


@pytest.mark.parametrize(
    "meta", [{"generation": 4}, {"uid": "other"}, {"deletionTimestamp": "2030-01-01T00:00:00Z"}]
)
def test_what_a_user_does_is_a_change(meta: Manifest) -> None:
    sightings = Sightings()
    sightings.note(seen())
    changed = seen()
    assert sightings.note({**changed, "metadata": changed["metadata"] | meta})


def test_a_class_leads_to_the_pools_that_use_it() -> None:
    sightings = Sightings()
    sightings.note(seen())
    assert sightings.using("chat") == [PoolKey("team-a", "chat")]
    assert sightings.using("batch") == []


def test_a_watch_that_misses_what_a_listing_shows_is_deaf_until_it_catches_up() -> None:
    sightings = Sightings()
    sightings.note(seen())
    newer = seen()
    newer = {**newer, "metadata": newer["metadata"] | {"generation": 9}}
    sightings.compare([seen()], 10.0)
    assert sightings.deaf_for(20.0) == 0.0
    sightings.compare([newer], 30.0)
    sightings.compare([newer], 60.0)
    assert sightings.deaf_for(100.0) == 70.0
    sightings.note(newer)
    assert sightings.deaf_for(100.0) == 0.0


def test_what_a_listing_no_longer_shows_is_forgotten() -> None:
    sightings = Sightings()
    sightings.note(seen())
    sightings.compare([], 10.0)
    assert sightings.using("chat") == []
    assert sightings.note(seen())


def test_a_spec_that_cannot_be_read_names_the_field() -> None:
    with pytest.raises(InvalidSpec, match=r"engine\.maxInputTokens"):
        read_pool(manifest({"engine": {"maxInputTokens": 0}}))
