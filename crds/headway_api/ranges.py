# SPDX-License-Identifier: Apache-2.0
"""Closed ranges `{min, max}`; the API server refuses one whose min exceeds its max."""

from typing import ClassVar

from pydantic import Field

from headway_api.api_model import ApiModel, Rule
from headway_api.fields import INT32_MAX, Int32

_ORDERED = Rule("self.min <= self.max", "min must not exceed max")


class TokenRange(ApiModel):
    """A closed range of tokens."""

    rules: ClassVar = (_ORDERED,)

    min: Int32 = Field(ge=1, le=INT32_MAX)
    """Lowest value autotune may apply."""
    max: Int32 = Field(ge=1, le=INT32_MAX)
    """Highest value autotune may apply."""


class RatioRange(ApiModel):
    """A closed range of a ratio in percent."""

    rules: ClassVar = (_ORDERED,)

    min: Int32 = Field(ge=0, le=1000)
    """Lowest value autotune may apply."""
    max: Int32 = Field(ge=0, le=1000)
    """Highest value autotune may apply."""


class PriorityRange(ApiModel):
    """A closed range of workload priorities."""

    rules: ClassVar = (_ORDERED,)

    min: Int32 = Field(ge=-1000, le=1000)
    """Lowest priority a workload may have."""
    max: Int32 = Field(ge=-1000, le=1000)
    """Highest priority a workload may have."""
