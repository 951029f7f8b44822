# SPDX-License-Identifier: Apache-2.0
"""What a replica runs on and how replicas are replaced: resources, placement, rollout, cache."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from headway_api.api_model import ApiModel, Rule
from headway_api.fields import (
    CountOrPercent,
    DnsLabel,
    DnsSubdomain,
    Int32,
    Int64,
    LabelKey,
    LabelValue,
    QualifiedName,
    Quantity,
)


class Gpu(ApiModel):
    """Accelerators."""

    resource_name: QualifiedName = "nvidia.com/gpu"
    """RESTART. Extended resource to ask for."""
    count: Int32 = Field(default=1, ge=0, le=16)
    """RESTART. Devices per replica, over which the model is split by tensor parallelism; 0 serves
    from the CPU."""


class Resources(ApiModel):
    """Resources of one replica."""

    gpu: Gpu = Gpu()
    """RESTART. Accelerators."""
    cpu: Quantity = "4"
    """RESTART. CPU request and limit."""
    memory: Quantity = "16Gi"
    """RESTART. Memory request and limit."""
    shared_memory: Quantity = "1Gi"
    """RESTART. Size of /dev/shm."""


class Toleration(ApiModel):
    """Lets pods onto nodes with a matching taint."""

    key: LabelKey | None = None
    """Taint key."""
    operator: Literal["Exists", "Equal"] | None = None
    """Whether the taint must exist or equal value."""
    value: QualifiedName | None = None
    """Taint value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Taint effect. Unset: every effect."""
    toleration_seconds: Int64 | None = None
    """How long a NoExecute taint is tolerated. Unit: seconds."""


class Placement(ApiModel):
    """Where the pods go."""

    node_selector: Annotated[dict[str, LabelValue], Field(max_length=32)] | None = None
    """RESTART. Labels a node must have."""
    tolerations: Annotated[list[Toleration], Field(max_length=16)] | None = None
    """RESTART. Taints the pods tolerate."""
    priority_class_name: DnsSubdomain | None = None
    """RESTART. PriorityClass of the pods."""
    runtime_class_name: DnsSubdomain | None = None
    """RESTART. RuntimeClass of the pods."""
    queue_name: DnsLabel | None = None
    """RESTART. Kueue LocalQueue, set as the kueue.x-k8s.io/queue-name label."""
    spread: Literal["None", "Node", "Zone"] = "Node"
    """RESTART. What replicas are spread over."""


class Rollout(ApiModel):
    """How RESTART changes roll."""

    rules: ClassVar = (
        Rule(
            "!has(self.maxSurge) || !has(self.maxUnavailable)"
            " || !(string(self.maxSurge) in ['0','0%']"
            " && string(self.maxUnavailable) in ['0','0%'])",
            "maxSurge and maxUnavailable must not both be zero",
        ),
    )

    max_surge: CountOrPercent = 1
    """Extra replicas during a roll, as a count or a percentage."""
    max_unavailable: CountOrPercent = 0
    """Replicas that may be missing during a roll, as a count or a percentage."""
    on_insufficient_capacity: Literal["Wait", "ReplaceInPlace"] = "Wait"
    """Wait keeps the old pods and reports; ReplaceInPlace gives up the surge."""
    operator_upgrade_policy: Literal["Ignore", "Roll"] = "Ignore"
    """Ignore: a new operator never changes running pods by itself. Roll: its image is adopted."""
    drain_timeout_seconds: Int32 = Field(default=300, ge=0, le=3600)
    """Time running requests get on shutdown. Unit: seconds."""
    progress_deadline_seconds: Int32 = Field(default=1800, ge=60, le=86_400)
    """A roll that makes no progress for this long turns Progressing False. Unit: seconds."""


class Cache(ApiModel):
    """Weight cache."""

    type: Literal["Ephemeral", "PersistentVolumeClaim"] = "Ephemeral"
    """RESTART. Medium of the cache."""
    size: Quantity = "50Gi"
    """RESTART. Capacity."""
    storage_class_name: DnsSubdomain | None = None
    """RESTART. StorageClass of the claim. Unset: the cluster's default."""
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany"] = "ReadWriteMany"
    """RESTART. Access mode of the claim."""
    retention_policy: Literal["Retain", "Delete"] = "Retain"
    """What happens to the claim when the pool is deleted."""
