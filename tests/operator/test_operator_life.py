# SPDX-License-Identifier: Apache-2.0
"""The operator against a real API server: a pool from its creation to its deletion."""

import pytest

from headway_api.inferencepool import InferencePoolStatus
from headway_operator.kube import (
    CONFIGMAPS,
    DEPLOYMENTS,
    EVENTS,
    INFERENCEPOOLS,
    NETWORKPOLICIES,
    PODS,
    SERVICEACCOUNTS,
    SERVICES,
    WORKLOADCLASSES,
    Manifest,
)
from headway_operator.resources import CHILDREN
from tests.operator.running_operator import RunningOperator
from tests.operator.world import World

CHILD_NAMES = {
    CONFIGMAPS: "chat-runtime",
    SERVICEACCOUNTS: "chat",
    NETWORKPOLICIES: "chat",
    DEPLOYMENTS: "chat",
    SERVICES: "chat",
}
CONDITIONS = {
    "Ready",
    "Admitted",
    "ModelCached",
    "Available",
    "Progressing",
    "RuntimeConfigSynced",
    "MetricsAvailable",
    "SLOMet",
    "Tuning",
}


async def test_a_pool_gets_children_of_its_own(world: World) -> None:
    pool = await world.create_pool()
    for resource, name in CHILD_NAMES.items():
        child = await world.exists(resource, name)
        owner = child["metadata"]["ownerReferences"][0]
        assert (owner["uid"], owner["controller"]) == (pool["metadata"]["uid"], True)
        assert child["metadata"]["labels"]["serving.headway.dev/pool"] == "chat"


IMAGE = {"name": "tiny", "source": "Image", "image": {"reference": "localhost/tiny:1"}}
CLAIM = {
    "name": "tiny",
    "source": "PersistentVolumeClaim",
    "persistentVolumeClaim": {"claimName": "weights"},
}


@pytest.mark.parametrize(
    "model", [{"name": "acme/tiny"}, IMAGE, CLAIM], ids=["hub", "image", "claim"]
)
async def test_pods_are_admitted_at_the_strictest_pod_security_level(
    world: World, model: Manifest
) -> None:
    await world.create_pool(model=model)
    assert await world.run_pods(1) == ["chat-0"]


async def test_every_condition_is_there_from_the_first_visit_on(world: World) -> None:
    await world.create_pool()
    await world.until_condition("Progressing", "True", "RollingOut")
    status = (await world.pool())["status"]
    InferencePoolStatus.model_validate(status, extra="forbid")
    assert {item["type"] for item in status["conditions"]} == CONDITIONS
    assert {item["observedGeneration"] for item in status["conditions"]} == {1}
    unknown = {item["type"] for item in status["conditions"] if item["reason"] == "Pending"}
    assert unknown >= {"MetricsAvailable", "SLOMet", "Tuning", "RuntimeConfigSynced"}
    assert status["url"] == f"http://chat.{world.namespace}.svc:8000"
    assert status["engine"]["image"] == "localhost/headway/server:1.2.3"


async def test_a_served_pool_says_so(world: World) -> None:
    await world.create_pool(replicas=2)
    await world.serve(replicas=2)
    status = (await world.pool())["status"]
    assert (status["replicas"], status["readyReplicas"], status["availableReplicas"]) == (2, 2, 2)
    assert status["runtimeConfig"]["revision"] == (await world.runtime()).revision
    assert status["runtimeConfig"]["appliedReplicas"] == 2
    assert status["runtimeConfig"]["pendingReplicas"] == 0
    assert status["engine"]["kvCacheCapacityTokens"] == 100_000
    effective = status["workloads"][0]
    assert effective["effective"]["maxBatchTotalTokens"] == 100_000
    assert effective["source"] == "Profiled"
    assert (await world.condition("ModelCached"))["reason"] == "Cached"
    assert (await world.condition("Progressing"))["reason"] == "Complete"
    selected = await world.api.list(
        PODS, world.namespace, dict([part.split("=") for part in status["selector"].split(",")])
    )
    assert len(selected) == 2


async def test_one_event_per_transition(running_operator: RunningOperator, world: World) -> None:
    await world.create_pool()
    await world.serve()
    await running_operator.idle(world.namespace)
    events = await world.api.list(EVENTS, world.namespace)
    assert {item["reason"]: (item["type"], item["count"]) for item in events} == {
        "PoolAdmitted": ("Normal", 1),
        "RolloutStarted": ("Normal", 1),
        "RolloutCompleted": ("Normal", 1),
        "ModelCached": ("Normal", 1),
        "RuntimeConfigApplied": ("Normal", 1),
    }


async def test_a_deleted_or_edited_child_comes_back(world: World) -> None:
    await world.create_pool()
    await world.serve()
    for resource, name in CHILD_NAMES.items():
        gone = await world.get(resource, name)
        await world.api.delete(resource, gone)
        again = await world.exists(resource, name)
        assert again["metadata"]["uid"] != gone["metadata"]["uid"]

    original = await world.get(DEPLOYMENTS, "chat")
    strange = {"spec": {"replicas": 7, "progressDeadlineSeconds": 1}}
    await world.api.merge(DEPLOYMENTS, "chat", world.namespace, strange)
    await world.api.merge(
        SERVICES,
        "chat",
        world.namespace,
        {"metadata": {"labels": {"serving.headway.dev/pool": None}}},
    )

    async def restored() -> bool:
        deployment = await world.get(DEPLOYMENTS, "chat")
        service = await world.get(SERVICES, "chat")
        return bool(
            deployment["spec"] == original["spec"]
            and service["metadata"]["labels"].get("serving.headway.dev/pool") == "chat"
        )

    await world.eventually(restored, "the edited children to be restored")

    async def told() -> bool:
        events = await world.api.list(EVENTS, world.namespace)
        reverts = [item for item in events if item["reason"] == "ChildDriftReverted"]
        return bool(reverts) and reverts[0]["count"] >= 5

    await world.eventually(told, "the event about the drift")


async def test_nothing_is_written_at_rest(running_operator: RunningOperator, world: World) -> None:
    await world.create_pool()
    await world.serve()
    await running_operator.idle(world.namespace)
    pool = await world.pool()
    writes = len(running_operator.writes())
    for _ in range(5):
        passes = running_operator.pool_passes()
        for resource, name in CHILD_NAMES.items():
            await world.touch(resource, name)
        await world.touch(INFERENCEPOOLS, "chat")
        await running_operator.pass_after(passes)
    running_operator.resync()
    await running_operator.idle(world.namespace)
    assert running_operator.writes()[writes:] == []
    assert (await world.pool())["status"] == pool["status"]


async def test_a_restart_writes_nothing_even_to_an_edited_class(
    running_operator: RunningOperator, world: World
) -> None:
    for name in ("a", "b"):
        await world.create_pool(name)
        await world.serve(name)
    edit = {"metadata": {"name": "batch"}, "spec": {"priority": -7}}
    batch = {"apiVersion": "serving.headway.dev/v1alpha1", "kind": "WorkloadClass", **edit}
    edited = await world.api.apply(WORKLOADCLASSES, batch, manager="an-admin")
    await running_operator.idle(world.namespace)
    writes, passes = len(running_operator.writes()), running_operator.pool_passes()
    running_operator.restart()
    await running_operator.pass_after(passes + 1)
    await running_operator.idle(world.namespace)
    assert running_operator.writes()[writes:] == []
    assert await world.api.get(WORKLOADCLASSES, "batch") == edited


async def test_what_is_no_longer_wanted_goes(world: World) -> None:
    await world.create_pool(scheduling={"nodeSelector": {"disk": "fast"}})
    await world.exists(SERVICES, "chat")
    await world.patch_pool(
        access={"networkPolicy": "Open"}, scheduling={"nodeSelector": None}, replicas=0
    )

    async def gone() -> bool:
        return await world.find(NETWORKPOLICIES, "chat") is None

    await world.eventually(gone, "the NetworkPolicy to go")

    async def dropped() -> bool:
        deployment = await world.get(DEPLOYMENTS, "chat")
        return "nodeSelector" not in deployment["spec"]["template"]["spec"]

    await world.eventually(dropped, "the node selector to go")
    await world.until_condition("Available", "True", "ScaledToZero")
    await world.until_condition("Ready", "True", "Ready")
    await world.patch_pool(access={"networkPolicy": "Namespace"})
    await world.exists(NETWORKPOLICIES, "chat")


async def test_a_foreign_object_of_the_same_name_is_left_alone(world: World) -> None:
    foreign: Manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "chat", "namespace": world.namespace},
        "spec": {"ports": [{"port": 80}], "selector": {"app": "theirs"}},
    }
    theirs = await world.api.create(SERVICES, foreign)
    await world.create_pool()
    condition = await world.until_condition("Available", "False", "Pending")
    assert condition["message"].startswith("Conflict: Service chat exists")
    live = await world.get(SERVICES, "chat")
    assert live["metadata"]["resourceVersion"] == theirs["metadata"]["resourceVersion"]
    await world.api.delete(SERVICES, live)
    service = await world.exists(SERVICES, "chat")

    async def ours() -> bool:
        service = await world.find(SERVICES, "chat")
        return bool(service and service["spec"]["selector"].get("serving.headway.dev/pool"))

    await world.eventually(ours, "the Service to be the pool's")
    assert service["metadata"]["name"] == "chat"


async def test_deletion_waits_for_nobody(running_operator: RunningOperator, world: World) -> None:
    await world.create_pool()
    await world.serve()
    for resource in (INFERENCEPOOLS, *CHILDREN, PODS):
        for item in await world.api.list(resource, world.namespace):
            assert "finalizers" not in item["metadata"], item["metadata"]
    running_operator.stop()
    await world.delete_pool()
    assert await world.find(INFERENCEPOOLS, "chat") is None
    deployment = await world.get(DEPLOYMENTS, "chat")
    passes = running_operator.pool_passes()
    running_operator.start()
    await world.api.delete(DEPLOYMENTS, deployment)
    await running_operator.pass_after(passes)
    await running_operator.idle(world.namespace)
    assert await world.find(DEPLOYMENTS, "chat") is None
