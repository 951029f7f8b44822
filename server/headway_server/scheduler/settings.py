# SPDX-License-Identifier: Apache-2.0
"""The values that steer the scheduler, all of them resolved to plain integers.

`Settings` are HOT: a new set replaces the old one whole, between two steps. `Capacity` is what
the process allocated at its start and never changes. Nothing here may know where values come from.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Knobs:
    """The four batching values of one workload, named as in the runtime file.

    max_batch_total_tokens: prompt plus reserved output tokens of all running requests.
    max_batch_prefill_tokens: prompt tokens computed in one step.
    waiting_served_ratio_percent, max_waiting_tokens: see `gate.AdmissionGate`.
    """

    max_batch_total_tokens: int
    max_batch_prefill_tokens: int
    waiting_served_ratio_percent: int = 30
    max_waiting_tokens: int = 20


@dataclass(frozen=True, slots=True)
class Formation:
    """How batches form. `max_batch_size`, `max_delay_seconds` and `bins` are not for Continuous.

    length_aware: shorter expected answers first, within a tenant, with ageing.
    output_reservation: Full sets KV aside for all of `max_new_tokens`; Expected for as many as
    the answer will most probably have, and a request that outgrows it may have to preempt another.
    """

    policy: Literal["Continuous", "Static", "Dynamic", "MultiBin"] = "Continuous"
    max_batch_size: int = 32
    max_delay_seconds: float = 0.05
    bins: int = 8
    length_predictor: Literal["History", "HiddenState", "MaxTokens"] = "History"
    length_aware: bool = False
    output_reservation: Literal["Expected", "Full"] = "Full"


@dataclass(frozen=True, slots=True)
class WorkloadPolicy:
    """How one workload is queued and admitted; a limit of None does not limit."""

    name: str
    knobs: Knobs
    priority: int = 0
    weight: int = 1
    max_running: int | None = None
    max_running_per_tenant: int | None = None
    max_queue_length: int | None = None
    queue_timeout_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """One set of values. `starvation_seconds`: see `planner.Planner`."""

    workloads: tuple[WorkloadPolicy, ...]
    revision: str = ""
    starvation_seconds: float = 10.0
    formation: Formation = Formation()


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one replica has: KV blocks of `block_size` tokens, and tokens in one forward pass."""

    kv_blocks: int
    block_size: int
    step_tokens: int

    @property
    def kv_tokens(self) -> int:
        return self.kv_blocks * self.block_size

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)
