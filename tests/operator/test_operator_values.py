# SPDX-License-Identifier: Apache-2.0
"""HOT values on their way: from a patch or the tuner's recommendation to the replicas and back."""

from typing import Any

from headway_api.conditions import ConditionType
from headway_api.names import (
    API_VERSION,
    OPERATOR_MANAGER,
    RUNTIME_REVISION_ANNOTATION,
    TUNER_MANAGER,
)
from headway_api.runtime import RuntimeFile
from headway_operator.kube import DEPLOYMENTS, INFERENCEPOOLS, PODS, WORKLOADCLASSES, Manifest
from tests.operator.running_operator import RunningOperator
from tests.operator.world import NOW, World

BOUNDS = {"maxBatchTotalTokens": {"min": 8192, "max": 50_000}}


async def until_revision_changes(world: World, old: str) -> RuntimeFile:
    async def changed() -> RuntimeFile | None:
        runtime = await world.runtime()
        return runtime if runtime.revision != old else None

    found: RuntimeFile = await world.eventually(changed, "a new revision of the runtime file")
    return found


async def until_announced(world: World, pod: str, revision: str) -> None:
    async def announced() -> bool:
        live = await world.get(PODS, pod)
        return bool(live["metadata"]["annotations"][RUNTIME_REVISION_ANNOTATION] == revision)

    await world.eventually(announced, f"{pod} to be told of {revision}")


async def recommend(world: World, **values: int) -> None:
    """Play the tuner: its own manager writes its own part of the status."""
    workload = {"name": "default", "recommended": values, "sampleCount": 120}
    await world.api.apply_status(
        INFERENCEPOOLS, _status(world, workloads=[workload]), manager=TUNER_MANAGER
    )


def _status(world: World, **status: Any) -> Manifest:
    meta = {"name": "chat", "namespace": world.namespace}
    kind = {"apiVersion": API_VERSION, "kind": "InferencePool"}
    return {**kind, "metadata": meta, "status": status}


def workload(**fields: Any) -> list[Manifest]:
    return [{"name": "default", **fields}]


async def test_a_hot_patch_touches_only_the_file_and_the_pods_annotation(
    running_operator: RunningOperator, world: World
) -> None:
    await world.create_pool(replicas=2)
    pods = await world.serve(replicas=2)
    await running_operator.idle(world.namespace)
    before, writes = await world.runtime(), len(running_operator.writes())
    deployment = await world.get(DEPLOYMENTS, "chat")
    live = [await world.get(PODS, pod) for pod in pods]

    await world.patch_pool(workloads=workload(batching={"maxBatchTotalTokens": 40_000}))
    runtime = await until_revision_changes(world, before.revision)
    assert runtime.stable.workloads[0].batching.max_batch_total_tokens == 40_000
    for pod in pods:
        await until_announced(world, pod, runtime.revision)
    await world.until_condition("RuntimeConfigSynced", "Unknown", "Applying")
    assert (await world.condition("Ready"))["status"] == "True"

    for pod in pods:
        world.acknowledge(pod, runtime.revision)
    await world.until_in_force(runtime.revision)
    await running_operator.idle(world.namespace)
    written = running_operator.writes()[writes:]
    assert written.count(("patch", "configmaps")) == 1
    assert written.count(("patch", "pods")) == 2
    assert {resource for _, resource in written} == {
        "configmaps",
        "pods",
        "inferencepools/status",
        "events",
    }
    assert await world.get(DEPLOYMENTS, "chat") == deployment
    for pod, old in zip(pods, live, strict=True):
        assert (await world.get(PODS, pod))["spec"] == old["spec"]
    config = (await world.pool())["status"]["runtimeConfig"]
    assert (config["revision"], config["appliedReplicas"]) == (runtime.revision, 2)
    effective = (await world.pool())["status"]["workloads"][0]
    assert effective["effective"]["maxBatchTotalTokens"] == 40_000
    assert effective["source"] == "Spec"


async def test_a_recommendation_is_applied_in_mode_auto_alone_and_within_bounds(
    running_operator: RunningOperator, world: World
) -> None:
    await world.create_pool(workloads=workload(bounds=BOUNDS))
    pods = await world.serve()
    before = await world.runtime()
    await recommend(world, maxBatchTotalTokens=30_000)
    await world.patch_pool(engine={"maxConcurrentRequests": 64})
    first = await until_revision_changes(world, before.revision)
    assert first.stable.workloads[0].batching.max_batch_total_tokens is None

    await world.patch_pool(autotune={"mode": "Auto"})
    second = await until_revision_changes(world, first.revision)
    assert second.stable.workloads[0].batching.max_batch_total_tokens == 30_000
    world.acknowledge(pods[0], second.revision)
    await world.until_in_force(second.revision)
    await running_operator.idle(world.namespace)

    await recommend(world, maxBatchTotalTokens=900_000)
    third = await until_revision_changes(world, second.revision)
    assert third.stable.workloads[0].batching.max_batch_total_tokens == 50_000
    await until_announced(world, pods[0], third.revision)
    world.acknowledge(pods[0], third.revision)
    await world.until_in_force(third.revision)
    status = (await world.pool())["status"]["workloads"][0]
    assert status["effective"]["maxBatchTotalTokens"] == 50_000
    assert status["source"] == "Autotune"
    assert status["recommended"]["maxBatchTotalTokens"] == 900_000
    assert status["sampleCount"] == 120


async def test_the_capacity_the_replicas_report_limits_the_tuner(world: World) -> None:
    await world.create_pool(autotune={"mode": "Auto"})
    pods = await world.serve()
    before = await world.runtime()
    world.acknowledge(pods[0], before.revision, capacity=20_000)
    await recommend(world, maxBatchTotalTokens=90_000)

    async def limited() -> bool:
        runtime = await world.runtime()
        return runtime.stable.workloads[0].batching.max_batch_total_tokens == 20_000

    await world.eventually(limited, "the budget to be cut to the capacity")


async def test_the_tuners_conditions_are_left_to_it_once_it_has_written_them(
    running_operator: RunningOperator, world: World
) -> None:
    await world.create_pool()
    await world.serve()
    condition = {
        "type": str(ConditionType.SLO_MET),
        "status": "False",
        "reason": "Breached",
        "message": "default: TTFT 900 ms of 500 ms",
        "lastTransitionTime": NOW,
    }
    await world.api.apply_status(
        INFERENCEPOOLS, _status(world, conditions=[condition]), manager=TUNER_MANAGER
    )
    await world.patch_pool(replicas=2)
    await world.serve(replicas=2)
    await running_operator.idle(world.namespace)
    assert (await world.condition("SLOMet"))["message"] == condition["message"]
    pool = await world.pool()
    managers = {
        entry["manager"]
        for entry in pool["metadata"]["managedFields"]
        if 'k:{"type":"SLOMet"}' in str(entry["fieldsV1"])
    }
    assert managers == {TUNER_MANAGER}
    assert (await world.condition("Tuning"))["reason"] == "Pending"
    assert OPERATOR_MANAGER not in managers


async def test_a_refused_file_names_replica_and_field(world: World) -> None:
    await world.create_pool(replicas=2)
    pods = await world.serve(replicas=2)
    old = await world.runtime()
    await world.patch_pool(workloads=workload(batching={"maxBatchTotalTokens": 200_000}))
    new = await until_revision_changes(world, old.revision)
    world.acknowledge(pods[0], new.revision)
    field = "stable.workloads[0].batching.maxBatchTotalTokens"
    world.reject(pods[1], new.revision, field)
    condition = await world.until_condition("RuntimeConfigSynced", "False", "ReplicaRejected")
    assert pods[1] in condition["message"]
    assert field in condition["message"]
    ready = await world.until_condition("Ready", "False", "ReplicaRejected")
    assert ready["message"] == condition["message"]

    await world.patch_pool(workloads=workload(batching={"maxBatchTotalTokens": 90_000}))
    newest = await until_revision_changes(world, new.revision)
    for pod in pods:
        world.acknowledge(pod, newest.revision)
    await world.until_in_force(newest.revision)
    await world.until_condition("Ready", "True", "Ready")


async def test_without_its_metrics_provider_a_pool_stays_ready(world: World) -> None:
    await world.create_pool()
    await world.serve()
    config = (await world.pool())["status"]["runtimeConfig"]
    world.prometheus.raw = (503, b"overloaded")
    try:
        await world.touch(DEPLOYMENTS, "chat")
        condition = await world.until_condition(
            "RuntimeConfigSynced", "Unknown", "ReplicaUnreachable"
        )
        assert "503" in condition["message"]
        assert (await world.condition("Ready"))["status"] == "True"
        assert (await world.pool())["status"]["runtimeConfig"] == config
    finally:
        world.prometheus.raw = None
    await world.touch(DEPLOYMENTS, "chat")
    await world.until_condition("RuntimeConfigSynced", "True", "Synced")
    assert (await world.pool())["status"]["runtimeConfig"] == config


async def test_a_missing_class_is_named_and_its_creation_suffices(world: World) -> None:
    name = f"late-{world.namespace}"
    await world.create_pool(workloads=workload(className=name))
    condition = await world.until_condition("RuntimeConfigSynced", "False", "Pending")
    assert f"WorkloadClass {name} does not exist" in condition["message"]
    assert "chat" in condition["message"]
    assert (await world.condition("Ready"))["message"].endswith("until it does")
    assert await world.find(DEPLOYMENTS, "chat") is None
    await world.api.create(
        WORKLOADCLASSES,
        {
            "apiVersion": API_VERSION,
            "kind": "WorkloadClass",
            "metadata": {"name": name},
            "spec": {"priority": 7},
        },
    )
    await world.exists(DEPLOYMENTS, "chat")
    assert (await world.runtime()).stable.workloads[0].priority == 7
