# SPDX-License-Identifier: Apache-2.0
"""A namespace of a real API server, with the parts of a cluster played by the test.

There is no Deployment controller, scheduler or kubelet: the test makes pods from the Deployment's
template and sets their status, as those would.
"""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from headway_api.metric_names import KV_TOKENS, RUNTIME_CONFIG_INFO, RUNTIME_CONFIG_REJECTED
from headway_api.names import API_VERSION
from headway_api.runtime import RuntimeFile, parse_runtime_file
from headway_operator.kube import (
    CONFIGMAPS,
    DEPLOYMENTS,
    INFERENCEPOOLS,
    PODS,
    Conflict,
    Gone,
    KubeApi,
    Manifest,
    Resource,
)
from tests.operator.prometheus_stub import PrometheusStub

WAIT_SECONDS = 60.0
POLL_SECONDS = 0.02
NOW = "2030-01-01T00:00:00Z"
NAMESPACES = Resource("", "v1", "namespaces", "Namespace")
STRICTEST = {"pod-security.kubernetes.io/enforce": "restricted"}
_TERMINATED = {"startedAt": NOW, "finishedAt": NOW}


class World:
    def __init__(self, api: KubeApi, namespace: str, prometheus: PrometheusStub) -> None:
        self.api = api
        self.namespace = namespace
        self.prometheus = prometheus

    async def create_pool(self, name: str = "chat", **spec: Any) -> Manifest:
        body = {"model": {"name": "acme/tiny"}, **spec}
        return await self.api.create(
            INFERENCEPOOLS,
            {
                "apiVersion": API_VERSION,
                "kind": "InferencePool",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": body,
            },
        )

    async def patch_pool(self, name: str = "chat", **spec: Any) -> Manifest:
        return await self.api.merge(INFERENCEPOOLS, name, self.namespace, {"spec": spec})

    async def delete_pool(self, name: str = "chat") -> None:
        while (pool := await self.find(INFERENCEPOOLS, name)) is not None:
            if pool["metadata"].get("deletionTimestamp"):
                return
            with contextlib.suppress(Conflict, Gone):
                await self.api.delete(INFERENCEPOOLS, pool)

    async def touch(self, resource: Resource, name: str) -> None:
        """Something that is no concern of the operator's, but an event for it all the same."""
        labels = {"metadata": {"labels": {"touched": uuid.uuid4().hex}}}
        await self.api.merge(resource, name, self.namespace, labels)

    async def pool(self, name: str = "chat") -> Manifest:
        return await self.api.get(INFERENCEPOOLS, name, self.namespace)

    async def get(self, resource: Resource, name: str) -> Manifest:
        return await self.api.get(resource, name, self.namespace)

    async def find(self, resource: Resource, name: str) -> Manifest | None:
        try:
            return await self.get(resource, name)
        except Gone:
            return None

    async def exists(self, resource: Resource, name: str) -> Manifest:
        found: Manifest = await self.eventually(
            lambda: self.find(resource, name), f"{resource.kind} {name} to exist"
        )
        return found

    async def runtime(self, name: str = "chat") -> RuntimeFile:
        configmap = await self.get(CONFIGMAPS, f"{name}-runtime")
        return parse_runtime_file(configmap["data"]["runtime.json"])

    async def condition(self, kind: str, name: str = "chat") -> Manifest:
        status = (await self.pool(name)).get("status") or {}
        found = [item for item in status.get("conditions") or [] if item["type"] == kind]
        return found[0] if found else {"status": None, "reason": None, "message": ""}

    async def until_condition(
        self, kind: str, status: str, reason: str, name: str = "chat"
    ) -> Manifest:
        async def holds() -> Manifest | None:
            found = await self.condition(kind, name)
            return found if (found["status"], found["reason"]) == (status, reason) else None

        condition: Manifest = await self.eventually(holds, f"{kind}={status} {reason}")
        return condition

    async def eventually(self, probe: Callable[[], Awaitable[Any]], what: str) -> Any:
        deadline = time.monotonic() + WAIT_SECONDS
        while not (found := await probe()):
            if time.monotonic() > deadline:
                pools = await self.api.list(INFERENCEPOOLS, self.namespace)
                raise AssertionError(f"waited in vain for {what}; pools: {pools}")
            await asyncio.sleep(POLL_SECONDS)
        return found

    async def run_pods(self, count: int, name: str = "chat", *, ready: bool = True) -> list[str]:
        """Play Deployment controller and kubelet: `count` pods of the Deployment's template."""
        deployment = await self.exists(DEPLOYMENTS, name)
        names = [f"{name}-{index}" for index in range(count)]
        for pod in names:
            if await self.find(PODS, pod) is None:
                template = deployment["spec"]["template"]
                meta = {**template["metadata"], "name": pod, "namespace": self.namespace}
                manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
                await self.api.create(PODS, {**manifest, "spec": template["spec"]})
            if ready:
                await self.set_pod(pod, conditions=[_condition("Ready", "True")])
        await self.set_deployment(name, count if ready else 0, count)
        return names

    async def set_pod(self, pod: str, **status: Any) -> None:
        await self.set_status(PODS, pod, {"phase": "Running", **status})

    async def crash(self, pod: str, code: int, output: str, reason: str = "Error") -> None:
        """The container has ended and waits for the next try, as between two crashes."""
        ended = {"exitCode": code, "reason": reason, "message": output, **_TERMINATED}
        await self.set_container(pod, {"waiting": {"reason": "CrashLoopBackOff"}}, ended)

    async def set_container(
        self, pod: str, state: Manifest, last_ended: Manifest | None = None
    ) -> None:
        status: Manifest = {"name": "server", "image": "i", "imageID": "", "ready": False}
        status |= {"restartCount": 1, "state": state}
        if last_ended:
            status["lastState"] = {"terminated": last_ended}
        conditions = [_condition("Ready", "False")]
        await self.set_pod(pod, conditions=conditions, containerStatuses=[status])

    async def unschedulable(self, pod: str, words: str) -> None:
        condition = _condition("PodScheduled", "False", "Unschedulable") | {"message": words}
        await self.set_pod(pod, phase="Pending", conditions=[condition])

    async def set_deployment(self, name: str, available: int, total: int) -> None:
        deployment = await self.get(DEPLOYMENTS, name)
        reason = "NewReplicaSetAvailable" if available >= total else "ReplicaSetUpdated"
        status = {
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": total,
            "updatedReplicas": total,
            "readyReplicas": available,
            "availableReplicas": available,
            "conditions": [_condition("Progressing", "True", reason) | {"lastUpdateTime": NOW}],
        }
        await self.set_status(DEPLOYMENTS, name, status)

    async def set_status(self, resource: Resource, name: str, status: Manifest) -> None:
        manifest = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "namespace": self.namespace},
            "status": status,
        }
        await self.api.apply_status(resource, manifest, manager="played")

    def acknowledge(self, pod: str, revision: str, capacity: int = 100_000) -> None:
        """Play the server of a pod and its Prometheus: this revision is in force."""
        labels = {"namespace": self.namespace, "pool": pod.rpartition("-")[0], "pod": pod}
        self.prometheus.clear(RUNTIME_CONFIG_INFO, **labels)
        self.prometheus.clear(RUNTIME_CONFIG_REJECTED, **labels)
        self.prometheus.set(RUNTIME_CONFIG_INFO, 1, revision=revision, **labels)
        self.prometheus.set(KV_TOKENS, capacity, state="capacity", **labels)

    def reject(self, pod: str, revision: str, field: str) -> None:
        labels = {"namespace": self.namespace, "pool": pod.rpartition("-")[0], "pod": pod}
        self.prometheus.set(RUNTIME_CONFIG_REJECTED, 1, revision=revision, field=field, **labels)

    async def until_in_force(self, revision: str, name: str = "chat") -> None:
        """Until the pool's status says that every ready replica runs with this revision."""

        async def in_force() -> bool:
            config = (await self.pool(name))["status"]["runtimeConfig"]
            return bool(config["revision"] == revision and config["pendingReplicas"] == 0)

        await self.eventually(in_force, f"revision {revision} to be in force")
        await self.until_condition("RuntimeConfigSynced", "True", "Synced", name)

    async def serve(self, name: str = "chat", replicas: int = 1) -> list[str]:
        """Bring a pool to Ready with every replica in line."""
        pods = await self.run_pods(replicas, name)
        revision = (await self.runtime(name)).revision
        for pod in pods:
            self.acknowledge(pod, revision)
        await self.until_in_force(revision, name)
        await self.until_condition("Ready", "True", "Ready", name)
        return pods


def _condition(kind: str, status: str, reason: str = "Played") -> Manifest:
    words = {"reason": reason, "message": reason, "lastTransitionTime": NOW}
    return {"type": kind, "status": status, **words}
