# SPDX-License-Identifier: Apache-2.0
"""The figures that `headway-bench engine` reports: their names, their goals, what they mean.

The names are a contract with whoever reads the JSON; the goals are only shown beside the figures.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

VS_TRANSFORMERS_CB = "ratio_vs_transformers_cb"
VS_STATIC = "ratio_vs_static"
VS_LLAMA_CPP_B32 = "ratio_vs_llama_cpp_b32"
VS_LLAMA_CPP_B1 = "ratio_vs_llama_cpp_b1"
OUTPUT_TOKENS = "output_tokens_per_second"
MATMUL_SHARE = "share_of_matmul_limit_b32"
SCHEDULER_MS = "scheduler_ms_per_step"
TTFT_MIXED = "ttft_p95_ratio_mixed"
TTFT_PREFIX = "ttft_ratio_prefix_hit"
ARGMAX_SHARE = "greedy_share_of_fp32_argmax"
LOGIT_GAP = "largest_logit_gap"


@dataclass(frozen=True, slots=True)
class Goal:
    bound: float
    at_least: bool

    def met(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound:g}"


GOALS: Mapping[str, Goal | None] = {
    VS_TRANSFORMERS_CB: Goal(3.0, at_least=True),
    VS_STATIC: Goal(4.0, at_least=True),
    VS_LLAMA_CPP_B32: Goal(1.6, at_least=True),
    VS_LLAMA_CPP_B1: Goal(0.9, at_least=True),
    OUTPUT_TOKENS: None,
    MATMUL_SHARE: Goal(0.75, at_least=True),
    SCHEDULER_MS: Goal(1.0, at_least=False),
    TTFT_MIXED: Goal(2.0, at_least=False),
    TTFT_PREFIX: Goal(0.25, at_least=False),
    ARGMAX_SHARE: Goal(0.99, at_least=True),
    LOGIT_GAP: Goal(0.25, at_least=False),
}

FIGURES = tuple(GOALS)


@dataclass(frozen=True, slots=True)
class Measured:
    """One figure of a finished run; `details` has its raw figures, JSON-ready."""

    name: str
    value: float
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def goal(self) -> Goal | None:
        return GOALS.get(self.name)
