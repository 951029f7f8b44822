# SPDX-License-Identifier: Apache-2.0
"""`spec.engine`: the envelope a server allocates at start, inside which the HOT values move."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from headway_api.api_model import ApiModel, Rule
from headway_api.fields import (
    INT32_MAX,
    LONGEST_PROMPT_TOKENS,
    LONGEST_REQUEST_TOKENS,
    ImageReference,
    Int32,
    Switch,
)


class BatchFormation(ApiModel):
    """How batches are formed."""

    policy: Literal["Continuous", "Static", "Dynamic", "MultiBin"] = "Continuous"
    """HOT, at an empty batch. Continuous: requests join and leave at every iteration. Static: fixed
    batches run to their end. Dynamic: a batch forms when the engine is free or maxDelayMilliseconds
    has passed. MultiBin: batches of requests of like output length."""
    max_batch_size: Int32 = Field(default=32, ge=1, le=4096)
    """HOT. Static, Dynamic, MultiBin: requests in a batch."""
    max_delay_milliseconds: Int32 = Field(default=50, ge=0, le=60_000)
    """HOT. Dynamic, MultiBin: longest wait for a batch to fill. Unit: milliseconds."""
    bins: Int32 = Field(default=8, ge=1, le=64)
    """HOT. MultiBin: number of bins."""
    length_predictor: Literal["History", "HiddenState", "MaxTokens"] = "History"
    """HOT. Where a request's expected output length comes from. Under Continuous it also orders the
    requests of one class while lengthAware is Enabled."""
    length_aware: Switch = "Disabled"
    """HOT. Continuous: shorter expected outputs first within a class, with ageing so that none
    starves."""
    output_reservation: Literal["Expected", "Full"] = "Expected"
    """HOT, for requests yet to be admitted. Output tokens set aside beside the prompt at admission.
    Expected: an upper estimate by lengthPredictor, so that more requests run at once; it grows with
    the answer, and where the KV cache or the workload's maxBatchTotalTokens has no room left a
    request is preempted, to be computed again later. It equals Full until lengths were observed.
    Full: all that the request may generate, so that none is preempted for want of room."""


class Engine(ApiModel):
    """Server envelope."""

    rules: ClassVar = (
        Rule(
            "!has(self.maxInputTokens) || !has(self.maxTotalTokens)"
            " || self.maxInputTokens < self.maxTotalTokens",
            "maxInputTokens must be below maxTotalTokens",
        ),
        Rule(
            "!has(self.kvCacheCapacityTokens) || !has(self.maxTotalTokens)"
            " || self.kvCacheCapacityTokens >= self.maxTotalTokens",
            "kvCacheCapacityTokens must hold at least one request of maxTotalTokens",
        ),
    )

    image: ImageReference | None = None
    """RESTART. Server image. Unset: the operator's own image, resolved once and recorded in
    status.engine.image."""
    max_input_tokens: Int32 = Field(default=4096, ge=1, le=LONGEST_PROMPT_TOKENS)
    """RESTART. Longest accepted prompt. Unit: tokens."""
    max_total_tokens: Int32 = Field(default=8192, ge=2, le=LONGEST_REQUEST_TOKENS)
    """RESTART. Longest prompt and output together. Unit: tokens."""
    kv_cache_capacity_tokens: Int32 | None = Field(default=None, ge=16, le=INT32_MAX)
    """RESTART. KV capacity of one replica, and the upper bound of every maxBatchTotalTokens. Unset:
    profiled at start. Unit: tokens."""
    gpu_memory_utilization_percent: Int32 = Field(default=90, ge=10, le=98)
    """RESTART. Share of the GPU's memory the server may use. Unit: percent."""
    max_concurrent_requests: Int32 = Field(default=128, ge=1, le=65_536)
    """HOT. Requests a replica admits, running and waiting, before it answers 429."""
    scheduling: BatchFormation = BatchFormation()
    """How batches are formed."""
    prefix_caching: Switch = "Enabled"
    """RESTART. Reuse of the KV blocks of equal prefixes, salted per tenant."""
    kv_cache_dtype: Literal["Auto", "Int8", "Fp8"] = "Auto"
    """RESTART. Type of the KV cache; Auto is the model's."""
    extra_args: (
        Annotated[list[Annotated[str, Field(max_length=1024)]], Field(max_length=32)] | None
    ) = None
    """RESTART. Further flags for the server. A TenantPolicy may refuse them."""
