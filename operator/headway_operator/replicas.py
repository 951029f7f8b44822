# SPDX-License-Identifier: Apache-2.0
"""What a Deployment's status says about its replicas and how far a rollout has come."""

from dataclasses import dataclass
from typing import Any

from headway_api.placement import Rollout
from headway_operator.resources import Manifest, Manifests

ROLLED_OUT = "NewReplicaSetAvailable"
DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"


@dataclass(frozen=True, slots=True)
class Replicas:
    """`lagging`: the Deployment controller has not seen the newest spec yet."""

    exists: bool = False
    total: int = 0
    updated: int = 0
    ready: int = 0
    available: int = 0
    rolling: bool = False
    lagging: bool = False
    deadline_exceeded: bool = False
    create_failure: str | None = None


def read_replicas(deployment: Manifest | None) -> Replicas:
    if deployment is None:
        return Replicas()
    status = deployment.get("status") or {}
    conditions = {item["type"]: item for item in status.get("conditions") or []}
    progress = conditions.get("Progressing", {}).get("reason")
    failure = conditions.get("ReplicaFailure", {})
    return Replicas(
        exists=True,
        total=status.get("replicas", 0),
        updated=status.get("updatedReplicas", 0),
        ready=status.get("readyReplicas", 0),
        available=status.get("availableReplicas", 0),
        rolling=progress not in {ROLLED_OUT, DEADLINE_EXCEEDED},
        lagging=status.get("observedGeneration", 0) < deployment["metadata"]["generation"],
        deadline_exceeded=progress == DEADLINE_EXCEEDED,
        create_failure=failure.get("message") if failure.get("status") == "True" else None,
    )


def serving(pods: Manifests) -> list[str]:
    """Names of the pods that are ready and not on their way out."""
    return sorted(
        pod["metadata"]["name"]
        for pod in pods
        if not pod["metadata"].get("deletionTimestamp") and _condition(pod, "Ready") == "True"
    )


def minimum_available(replicas: int, rollout: Rollout) -> int:
    """How many must serve for the pool to count as available; a percentage is rounded down."""
    allowed = rollout.max_unavailable
    if isinstance(allowed, str):
        allowed = replicas * int(allowed.removesuffix("%")) // 100
    return max(1, replicas - allowed)


def _condition(pod: Manifest, wanted: str) -> Any:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return next((item["status"] for item in conditions if item["type"] == wanted), None)
