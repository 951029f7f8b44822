# SPDX-License-Identifier: Apache-2.0
"""WorkloadClass: a reusable profile of traffic that workloads of many pools inherit from."""

from pydantic import Field

from headway_api.api_model import ApiModel
from headway_api.autotune import TuningObjective
from headway_api.batching import Batching, Bounds
from headway_api.conditions import Conditions
from headway_api.fields import LONGEST_PROMPT_TOKENS, Int32, Int64
from headway_api.objectives import ServiceLevel


class Traffic(ApiModel):
    """Expected shape of the requests."""

    input_tokens: Int32 | None = Field(default=None, ge=1, le=LONGEST_PROMPT_TOKENS)
    """Typical prompt. Unit: tokens."""
    output_tokens: Int32 | None = Field(default=None, ge=1, le=LONGEST_PROMPT_TOKENS)
    """Typical output. Unit: tokens."""


class WorkloadClassSpec(ApiModel):
    """What workloads of this class inherit where they set nothing themselves."""

    description: str | None = Field(default=None, max_length=1024)
    """Free text."""
    priority: Int32 = Field(default=0, ge=-1000, le=1000)
    """Strict priority, higher first."""
    slo: ServiceLevel | None = None
    """Latency objectives."""
    batching: Batching | None = None
    """First values of the knobs."""
    bounds: Bounds | None = None
    """Ranges autotune stays in."""
    objective: TuningObjective = "MaximizeThroughput"
    """What autotune improves once every latency objective holds."""
    traffic: Traffic | None = None
    """Expected shape of the requests, for first values and benchmarks."""


class WorkloadClassStatus(ApiModel):
    """Use of the class."""

    observed_generation: Int64 | None = None
    """Newest spec generation seen."""
    pool_count: Int32 | None = Field(default=None, ge=0)
    """Workloads that reference the class."""
    conditions: Conditions | None = None
    """Standard conditions."""
