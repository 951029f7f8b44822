# SPDX-License-Identifier: Apache-2.0
"""What a user reads when something is wrong: the pool says what, in the words of who knows."""

import uuid
from typing import Any

import pytest

from headway_operator.kube import (
    CONFIGMAPS,
    DEPLOYMENTS,
    NETWORKPOLICIES,
    Denied,
    Manifest,
    Resource,
)
from tests.api_server import ApiServer
from tests.operator.running_operator import RunningOperator
from tests.operator.world import World

QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
NETWORKPOLICY = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "spec": {"podSelector": {}},
}
NO_CONFIG = (
    "loading\nheadway-server: model folder /models/acme/none has no config.json: is it a model?\n"
)


async def test_a_model_that_does_not_exist(world: World) -> None:
    await world.create_pool(model={"name": "acme/none"})
    (pod,) = await world.run_pods(1, ready=False)
    await world.crash(pod, 1, NO_CONFIG)
    condition = await world.until_condition("Available", "False", "ModelLoadFailed")
    assert "exited with code 1" in condition["message"]
    assert "/models/acme/none has no config.json" in condition["message"]
    assert "loading" not in condition["message"]
    ready = await world.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "ModelLoadFailed")


async def test_a_pod_that_crashes_over_and_over_causes_one_write(
    running_operator: RunningOperator, world: World
) -> None:
    await world.create_pool()
    (pod,) = await world.run_pods(1, ready=False)
    await world.crash(pod, 137, "", reason="OOMKilled")
    condition = await world.until_condition("Available", "False", "CrashLooping")
    assert "exited with code 137 (OOMKilled)" in condition["message"]
    await running_operator.idle(world.namespace)
    writes, passes = len(running_operator.writes()), running_operator.pool_passes()
    ended = {"exitCode": 137, "reason": "OOMKilled"}
    await world.set_container(pod, {"running": {}}, ended)
    await running_operator.pass_after(passes)
    await world.crash(pod, 137, "", reason="OOMKilled")
    await running_operator.idle(world.namespace)
    assert running_operator.writes()[writes:] == []


async def test_a_gpu_that_is_not_there(world: World) -> None:
    words = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    await world.create_pool()
    (pod,) = await world.run_pods(1, ready=False)
    await world.unschedulable(pod, words)
    condition = await world.until_condition("Available", "False", "Unschedulable")
    assert words in condition["message"]


async def test_an_image_that_cannot_be_pulled_reads_the_same_at_every_try(
    running_operator: RunningOperator, world: World
) -> None:
    cause = 'failed to pull "localhost/none:1": not found'
    await world.create_pool(engine={"image": "localhost/none:1"})
    (pod,) = await world.run_pods(1, ready=False)
    await world.set_container(pod, {"waiting": {"reason": "ErrImagePull", "message": cause}})
    condition = await world.until_condition("Available", "False", "ImagePullFailed")
    assert cause in condition["message"]
    await running_operator.idle(world.namespace)
    pool, passes = await world.pool(), running_operator.pool_passes()
    again = f'Back-off pulling image "localhost/none:1": ErrImagePull: {cause}'
    await world.set_container(pod, {"waiting": {"reason": "ImagePullBackOff", "message": again}})
    await running_operator.pass_after(passes)
    await running_operator.idle(world.namespace)
    assert await world.pool() == pool


async def test_a_hub_token_that_is_not_there(world: World) -> None:
    await world.create_pool(model={"name": "acme/gated", "tokenSecretRef": {"name": "hub"}})
    (pod,) = await world.run_pods(1, ready=False)
    waiting = {"reason": "CreateContainerConfigError", "message": 'secret "hub" not found'}
    await world.set_container(pod, {"waiting": waiting})
    condition = await world.until_condition("ModelCached", "False", "TokenMissing")
    assert 'secret "hub" not found' in condition["message"]
    assert 'secret "hub" not found' in (await world.condition("Available"))["message"]


async def test_a_roll_that_cannot_be_placed_keeps_the_old_replicas(world: World) -> None:
    await world.create_pool()
    await world.serve()
    await world.patch_pool(model={"name": "acme/bigger"})
    await world.until_condition("Progressing", "True", "RollingOut")
    await world.run_pods(2, ready=False)
    await world.unschedulable("chat-1", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
    await world.set_deployment("chat", 1, 2)
    condition = await world.until_condition("Progressing", "True", "InsufficientCapacityForSurge")
    assert "Insufficient nvidia.com/gpu" in condition["message"]
    assert (await world.condition("Ready"))["status"] == "True"


async def test_a_path_out_of_the_volume_is_refused_until_it_is_changed(
    running_operator: RunningOperator, world: World
) -> None:
    claim = {"claimName": "weights", "path": "../../etc"}
    model = {"name": "tiny", "source": "PersistentVolumeClaim", "persistentVolumeClaim": claim}
    await world.create_pool(model=model)
    condition = await world.until_condition("Admitted", "False", "Pending")
    assert "../../etc/tiny" in condition["message"]
    assert "must not leave the volume" in condition["message"]
    assert (await world.condition("Ready"))["status"] == "False"
    await running_operator.idle(world.namespace)
    assert await world.find(DEPLOYMENTS, "chat") is None
    await world.patch_pool(model={"persistentVolumeClaim": {"path": "/weights"}})
    deployment = await world.exists(DEPLOYMENTS, "chat")
    assert "/models/weights/tiny" in str(deployment["spec"]["template"])
    await world.until_condition("Admitted", "True", "NoPolicy")


async def test_a_child_the_cluster_refuses_shows_its_words_and_the_rest_waits(
    world: World,
) -> None:
    await forbid_networkpolicies(world)
    await world.create_pool()

    async def refused() -> Manifest | None:
        condition = await world.condition("Available")
        return condition if "NetworkPolicy chat was refused" in condition["message"] else None

    condition = await world.eventually(refused, "the refusal to be told")
    assert condition["status"] == "False"
    assert "quota" in condition["message"]
    assert await world.find(CONFIGMAPS, "chat-runtime") is not None
    assert await world.find(NETWORKPOLICIES, "chat") is None
    assert await world.find(DEPLOYMENTS, "chat") is None


async def forbid_networkpolicies(world: World) -> None:
    meta = {"name": "none", "namespace": world.namespace}
    hard = {"count/networkpolicies.networking.k8s.io": "0"}
    kind = {"apiVersion": "v1", "kind": "ResourceQuota"}
    await world.api.create(QUOTAS, {**kind, "metadata": meta, "spec": {"hard": hard}})
    await world.set_status(QUOTAS, "none", {"hard": hard, "used": hard})

    async def in_force() -> bool:
        probe = {**NETWORKPOLICY, "metadata": {**meta, "name": f"p-{uuid.uuid4().hex}"}}
        try:
            await world.api.create(NETWORKPOLICIES, probe)
        except Denied:
            return True
        return False

    await world.eventually(in_force, "the quota to be in force")


async def test_a_pool_on_its_way_out_gets_no_new_children(
    running_operator: RunningOperator, world: World, api_server: ApiServer
) -> None:
    await world.create_pool()
    await world.serve()
    api_server.kubectl(
        "delete", "inferencepools.serving.headway.dev", "chat", "-n", world.namespace,
        "--cascade=foreground", "--wait=false",
    )  # fmt: skip
    assert (await world.pool())["metadata"]["deletionTimestamp"]
    await running_operator.idle(world.namespace)
    passes = running_operator.pool_passes()
    await world.api.delete(DEPLOYMENTS, await world.get(DEPLOYMENTS, "chat"))
    await running_operator.pass_after(passes)
    await running_operator.idle(world.namespace)
    assert await world.find(DEPLOYMENTS, "chat") is None


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"access": {"allowedClients": [{}]}},
            "access.allowedClients.0: an empty selector would let everybody in",
        ),
        (
            {"access": {"allowedClients": [{"namespaceSelector": {}}]}},
            "access.allowedClients.0: an empty selector would let everybody in",
        ),
    ],
)
async def test_a_client_list_that_lets_everybody_in(
    world: World, spec: dict[str, Any], words: str
) -> None:
    await world.create_pool(**spec)
    condition = await world.until_condition("Admitted", "False", "Pending")
    assert words in condition["message"]
    assert await world.find(DEPLOYMENTS, "chat") is None
    assert (await world.pool())["status"]["observedGeneration"] == 1
