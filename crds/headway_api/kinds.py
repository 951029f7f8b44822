# SPDX-License-Identifier: Apache-2.0
"""The three kinds of Headway as users meet them in kubectl: names, columns, subresources."""

from headway_api.api_model import Rule
from headway_api.crd import Column, Kind
from headway_api.inferencepool import InferencePoolSpec, InferencePoolStatus
from headway_api.names import (
    INFERENCE_POOL,
    INFERENCEPOOLS,
    TENANT_POLICY,
    TENANTPOLICIES,
    WORKLOAD_CLASS,
    WORKLOADCLASSES,
)
from headway_api.tenantpolicy import TenantPolicySpec, TenantPolicyStatus
from headway_api.workloadclass import WorkloadClassSpec, WorkloadClassStatus

POOL_NAME_MAX = 40

_AGE = Column("Age", "date", ".metadata.creationTimestamp")


def _condition(type_: str, member: str) -> str:
    return f".status.conditions[?(@.type=='{type_}')].{member}"


INFERENCE_POOL_KIND = Kind(
    name=INFERENCE_POOL,
    plural=INFERENCEPOOLS,
    short_name="hpool",
    scope="Namespaced",
    description="A model served by replicas of Headway's own server, whose continuous batching is"
    " tuned until the declared latency objectives hold.",
    spec=InferencePoolSpec,
    status=InferencePoolStatus,
    columns=(
        Column("Model", "string", ".spec.model.name"),
        Column("Desired", "integer", ".spec.replicas"),
        Column("Ready", "integer", ".status.readyReplicas"),
        Column("Status", "string", _condition("Ready", "status")),
        Column("Reason", "string", _condition("Ready", "reason")),
        Column("SLO", "string", _condition("SLOMet", "status")),
        Column("Tuning", "string", ".spec.autotune.mode"),
        _AGE,
        Column("Tokens", "integer", ".status.workloads[0].effective.maxBatchTotalTokens", 1),
        Column("WSR%", "integer", ".status.workloads[0].effective.waitingServedRatioPercent", 1),
        Column("Synced", "string", _condition("RuntimeConfigSynced", "status"), 1),
        Column("Tenant", "string", ".status.tenant.policyName", 1),
        Column("Image", "string", ".status.engine.image", 1),
    ),
    # Children carry the pool's name in labels and with suffixes, which have limits of their own.
    rules=(
        Rule(
            f"self.metadata.name.size() <= {POOL_NAME_MAX}",
            f"metadata.name must not exceed {POOL_NAME_MAX} characters",
        ),
        Rule(
            "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            "metadata.name must start with a letter and have no dots: a Service is named after it",
        ),
    ),
    selectable_fields=(".spec.model.name", ".status.tenant.policyName"),
    scalable=True,
)

WORKLOAD_CLASS_KIND = Kind(
    name=WORKLOAD_CLASS,
    plural=WORKLOADCLASSES,
    short_name="wlclass",
    scope="Cluster",
    description="A profile of traffic, such as chat or batch, that workloads inherit from.",
    spec=WorkloadClassSpec,
    status=WorkloadClassStatus,
    columns=(
        Column("Priority", "integer", ".spec.priority"),
        Column("Objective", "string", ".spec.objective"),
        Column("Pools", "integer", ".status.poolCount"),
        _AGE,
    ),
)

TENANT_POLICY_KIND = Kind(
    name=TENANT_POLICY,
    plural=TENANTPOLICIES,
    short_name="tpol",
    scope="Cluster",
    description="What the pools in a tenant's namespaces may ask for, and the isolation they get.",
    spec=TenantPolicySpec,
    status=TenantPolicyStatus,
    columns=(
        Column("Namespaces", "integer", ".status.matchedNamespaces"),
        Column("Pools", "integer", ".status.pools.total"),
        Column("Refused", "integer", ".status.pools.refused"),
        Column("GPUs", "integer", ".status.gpusInUse"),
        Column("Enforcement", "string", ".spec.enforcement"),
        Column("Status", "string", _condition("Ready", "status")),
        _AGE,
    ),
)

KINDS = (INFERENCE_POOL_KIND, WORKLOAD_CLASS_KIND, TENANT_POLICY_KIND)
