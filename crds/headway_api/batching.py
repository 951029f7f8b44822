# SPDX-License-Identifier: Apache-2.0
"""The knobs of continuous batching, the ranges they may be tuned in, and admission limits."""

from pydantic import Field

from headway_api.api_model import ApiModel
from headway_api.fields import INT32_MAX, Int32
from headway_api.ranges import RatioRange, TokenRange


class Batching(ApiModel):
    """Values of the batching knobs; an unset one is inherited."""

    max_batch_total_tokens: Int32 | None = Field(default=None, ge=1, le=INT32_MAX)
    """HOT. Tokens (prompt + reserved output) this workload may hold in the running batch of one
    replica. Unset: the class's value, else the profiled KV capacity. Unit: tokens."""
    max_batch_prefill_tokens: Int32 | None = Field(default=None, ge=1, le=INT32_MAX)
    """HOT. Prompt tokens allowed in one prefill step. Unit: tokens."""
    waiting_served_ratio_percent: Int32 | None = Field(default=None, ge=0, le=1000)
    """HOT. Ratio of waiting to running requests above which running decodes pause so that waiting
    requests are prefilled (30 = 0.30). Unit: percent."""
    max_waiting_tokens: Int32 | None = Field(default=None, ge=0, le=10_000)
    """HOT. Decode steps after which waiting requests are let in whatever the ratio. Unit: decode
    steps (tokens)."""


class KnobValues(ApiModel):
    """Observed or recommended values of the batching knobs."""

    max_batch_total_tokens: Int32 | None = Field(default=None, ge=0, le=INT32_MAX)
    """As in spec. Unit: tokens."""
    max_batch_prefill_tokens: Int32 | None = Field(default=None, ge=0, le=INT32_MAX)
    """As in spec. Unit: tokens."""
    waiting_served_ratio_percent: Int32 | None = Field(default=None, ge=0, le=INT32_MAX)
    """As in spec. Unit: percent."""
    max_waiting_tokens: Int32 | None = Field(default=None, ge=0, le=INT32_MAX)
    """As in spec. Unit: decode steps (tokens)."""


class Bounds(ApiModel):
    """Ranges autotune stays in."""

    max_batch_total_tokens: TokenRange | None = None
    """Range of batching.maxBatchTotalTokens. Unit: tokens."""
    waiting_served_ratio_percent: RatioRange | None = None
    """Range of batching.waitingServedRatioPercent. Unit: percent."""


class WorkloadLimits(ApiModel):
    """What a workload's requests may ask for, and how many there may be."""

    max_input_tokens: Int32 | None = Field(default=None, ge=1)
    """Longer prompts are refused with 400 after the token count, before any KV is taken. Unset: the
    engine's value. Unit: tokens."""
    max_output_tokens: Int32 | None = Field(default=None, ge=1)
    """Cap on a request's max_tokens. Unit: tokens."""
    max_concurrent_requests: Int32 | None = Field(default=None, ge=1)
    """Running requests of this workload per replica."""
    max_concurrent_requests_per_tenant: Int32 | None = Field(default=None, ge=1)
    """Running requests of one client identity per replica."""
    max_queue_length: Int32 | None = Field(default=None, ge=0)
    """Waiting requests; one more is answered 429 with Retry-After."""
    queue_timeout_seconds: Int32 | None = Field(default=None, ge=1)
    """A request that waits longer is answered 503 and leaves the queue. Unit: seconds."""
