# SPDX-License-Identifier: Apache-2.0
"""TenantPolicy, what an admin writes: what pools in the governed namespaces may ask for and get."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from headway_api.api_model import ApiModel, Rule
from headway_api.autotune import AutotuneMode
from headway_api.conditions import Conditions
from headway_api.fields import (
    INT32_MAX,
    LIST_SET,
    DnsLabel,
    ImageReference,
    Int32,
    Int64,
    LabelKey,
    LabelValue,
    Permission,
    QualifiedName,
    Quantity,
)
from headway_api.model_source import ModelSource
from headway_api.ranges import PriorityRange
from headway_api.selectors import NonEmptyLabelSelector

TOKENS_PER_MINUTE_MAX = 2**53 - 1


class Limits(ApiModel):
    """Caps; an unset one means unlimited."""

    max_pools_per_namespace: Int32 | None = Field(default=None, ge=0, le=1000)
    """Pools in one namespace."""
    max_gpus_per_namespace: Int32 | None = Field(default=None, ge=0, le=100_000)
    """Devices in one namespace, also rendered as a ResourceQuota on requests.<gpu>."""
    max_replicas_per_pool: Int32 | None = Field(default=None, ge=0, le=1024)
    """Replicas of one pool."""
    max_batch_total_tokens: Int32 | None = Field(default=None, ge=1, le=INT32_MAX)
    """Highest maxBatchTotalTokens of one workload on one replica. Unit: tokens."""
    max_cache_size: Quantity | None = None
    """Weight cache of one pool."""


class Allowed(ApiModel):
    """Allow lists; an empty or unset one allows everything unless it says otherwise."""

    models: Annotated[list[QualifiedName], Field(max_length=64), LIST_SET] | None = None
    """Glob patterns on spec.model.name."""
    model_sources: Annotated[list[ModelSource], Field(max_length=3), LIST_SET] | None = None
    """Values of spec.model.source."""
    images: Annotated[list[ImageReference], Field(max_length=32), LIST_SET] | None = None
    """Prefixes of server and model images."""
    workload_class_names: Annotated[list[DnsLabel], Field(max_length=32), LIST_SET] | None = None
    """Classes a workload may inherit from."""
    priority: PriorityRange | None = None
    """Priorities a workload may have."""
    gpu_resource_names: Annotated[list[QualifiedName], Field(max_length=16), LIST_SET] | None = None
    """Extended resources a pool may ask for."""
    autotune_modes: Annotated[list[AutotuneMode], Field(max_length=3), LIST_SET] | None = None
    """Values of spec.autotune.mode."""
    priority_class_names: Annotated[list[QualifiedName], Field(max_length=32), LIST_SET] | None = (
        None
    )
    """Pod PriorityClasses a pool may name. Unset: none."""
    runtime_class_names: Annotated[list[QualifiedName], Field(max_length=16), LIST_SET] | None = (
        None
    )
    """RuntimeClasses a pool may name. Unset: none."""
    toleration_keys: Annotated[list[LabelKey], Field(max_length=32), LIST_SET] | None = None
    """Taint keys a pool may tolerate. Unset: none. A toleration without a key is always refused."""
    node_selector_keys: Annotated[list[LabelKey], Field(max_length=32), LIST_SET] | None = None
    """Node labels a pool may select on. Unset: none. The policy's own selector always wins."""
    remote_code_policy: Permission = "Deny"
    """Whether spec.model.remoteCodePolicy may be Allow."""
    extra_args: Permission = "Deny"
    """Whether spec.engine.extraArgs may be set."""


class Isolation(ApiModel):
    """Isolation of every governed pool."""

    network_policy: Literal["Strict", "Namespace", "None"] = "Namespace"
    """Strict: only the pool's allowedClients. Namespace: the pool's namespace too. None: no
    NetworkPolicy."""
    egress: Literal["ModelHubOnly", "Deny", "Any"] = "ModelHubOnly"
    """ModelHubOnly: DNS, and port 443 while weights load. Deny: DNS only. Any: no egress rule."""
    pod_security: Literal["Restricted", "Baseline", "Ignore"] = "Restricted"
    """Pod Security level the namespace's label must set; the operator never edits the label."""
    node_selector: Annotated[dict[str, LabelValue], Field(max_length=16)] | None = None
    """Dedicated nodes, added to every pod."""
    taint_key: LabelKey | None = None
    """Taint key every pod tolerates."""
    cache_sharing: Literal["Never", "WithinNamespace"] = "WithinNamespace"
    """Which pools may share a weight cache; never across namespaces."""


class Subject(ApiModel):
    """Who may edit pools."""

    rules: ClassVar = (
        Rule(
            "self.kind == 'ServiceAccount' ? has(self.namespace) : !has(self.namespace)",
            "namespace must be set exactly for ServiceAccount",
        ),
    )

    kind: Literal["Group", "User", "ServiceAccount"]
    """Kind of the subject."""
    name: QualifiedName = Field(min_length=1)
    """Name of the subject."""
    namespace: str | None = Field(default=None, max_length=63)
    """Namespace of a ServiceAccount."""


class TenantAccess(ApiModel):
    """Client access."""

    authentication: Literal["Optional", "Required"] = "Required"
    """Required refuses pools whose authentication is not APIKey."""
    requests_per_minute: Int32 | None = Field(default=None, ge=1, le=10_000_000)
    """Requests per API key. Unset: unlimited."""
    tokens_per_minute: Int64 | None = Field(default=None, ge=1, le=TOKENS_PER_MINUTE_MAX)
    """Tokens per API key. Unset: unlimited. Unit: tokens."""
    subjects: Annotated[list[Subject], Field(max_length=32)] | None = None
    """Subjects bound to the pool-editor role in the governed namespaces."""


class TenantPolicySpec(ApiModel):
    """What pools in the governed namespaces may ask for and get."""

    namespace_selector: NonEmptyLabelSelector
    """Namespaces governed; must not be empty."""
    precedence: Int32 = Field(default=0, ge=0, le=10_000)
    """The higher one wins when several policies match a namespace; a tie makes both Conflicted."""
    enforcement: Literal["Enforce", "Audit"] = "Enforce"
    """Audit reports without refusing."""
    limits: Limits = Limits()
    """Caps; unset means unlimited."""
    allowed: Allowed = Allowed()
    """Allow lists."""
    isolation: Isolation = Isolation()
    """Isolation of every governed pool."""
    access: TenantAccess = TenantAccess()
    """Client access."""


class PoolCounts(ApiModel):
    """Governed pools."""

    total: Int32 | None = Field(default=None, ge=0)
    """All."""
    admitted: Int32 | None = Field(default=None, ge=0)
    """Admitted."""
    refused: Int32 | None = Field(default=None, ge=0)
    """Refused, or audited."""


class TenantPolicyStatus(ApiModel):
    """Effect of the policy."""

    observed_generation: Int64 | None = None
    """Newest spec generation acted on."""
    matched_namespaces: Int32 | None = Field(default=None, ge=0)
    """Namespaces governed."""
    pools: PoolCounts | None = None
    """Governed pools."""
    gpus_in_use: Int32 | None = Field(default=None, ge=0)
    """Devices requested by governed pools."""
    conditions: Conditions | None = None
    """Standard conditions."""
