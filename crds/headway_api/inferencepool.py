# SPDX-License-Identifier: Apache-2.0
"""The spec of an InferencePool, what a tenant writes: one model, its replicas and its workloads."""

from typing import Annotated, ClassVar

from pydantic import Field

from headway_api.access import Access, Gateway, Metrics
from headway_api.api_model import ApiModel, Rule
from headway_api.autotune import Autotune
from headway_api.engine import Engine
from headway_api.fields import WORKLOADS_MAX, Int32, list_map
from headway_api.inferencepool_status import InferencePoolStatus
from headway_api.model_source import Model
from headway_api.placement import Cache, Placement, Resources, Rollout
from headway_api.workload import Workload

__all__ = ["InferencePoolSpec", "InferencePoolStatus"]


class InferencePoolSpec(ApiModel):
    """What should be served and how. Autotune never writes here."""

    rules: ClassVar = (
        Rule(
            "self.workloads.all(w, !has(w.batching) || !has(w.batching.maxBatchTotalTokens)"
            " || w.batching.maxBatchTotalTokens >= self.engine.maxTotalTokens)",
            "maxBatchTotalTokens must hold at least one request of engine.maxTotalTokens",
        ),
        Rule(
            "self.workloads.all(w, !has(w.bounds) || !has(w.bounds.maxBatchTotalTokens)"
            " || w.bounds.maxBatchTotalTokens.min >= self.engine.maxTotalTokens)",
            "bounds.maxBatchTotalTokens.min must hold at least one request of"
            " engine.maxTotalTokens",
        ),
    )

    replicas: Int32 = Field(default=1, ge=0, le=1024)
    """Server replicas, and the target of the scale subresource; leave it out of version control
    when an autoscaler owns it."""
    model: Model
    """RESTART. Model to serve."""
    engine: Engine = Engine()
    """Server envelope, fixed at process start unless a field says HOT."""
    workloads: Annotated[list[Workload], list_map("name")] = Field(
        default=[Workload(name="default")], min_length=1, max_length=WORKLOADS_MAX
    )
    """Workloads that share these replicas."""
    autotune: Autotune = Autotune()
    """Closed loop on the HOT values."""
    resources: Resources = Resources()
    """RESTART. Resources of one replica."""
    scheduling: Placement = Placement()
    """RESTART. Placement of the pods; a TenantPolicy may add to it."""
    rollout: Rollout = Rollout()
    """How RESTART changes roll."""
    cache: Cache = Cache()
    """RESTART. Weight cache."""
    access: Access = Access()
    """Who may call the pool."""
    metrics: Metrics = Metrics()
    """How the pool is observed."""
    gateway: Gateway = Gateway()
    """Interoperation with the Gateway API Inference Extension."""
