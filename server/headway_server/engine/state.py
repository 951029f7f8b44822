# SPDX-License-Identifier: Apache-2.0
"""What the engine shows of itself: one immutable snapshot, replaced after every step and when idle.

Readers (metrics, health) take the reference and never touch the engine's own structures.
Every counter is a sum since the engine started.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

from headway_server.scheduler import Blocked, Knobs, Plan, Workload

# Upper edges of the histogram of step times; the last bucket, open above, is not listed.
STEP_SECONDS_BUCKETS = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class WorkloadState:
    """One workload now, and since the start how often its queue's head was held back, by reason."""

    running: int
    waiting: int
    reserved_tokens: int
    blocked: Mapping[Blocked, int]
    knobs: Knobs
    oldest_waiting_since: float | None = None
    batch_tokens: int = 0
    preemptions: int = 0
    cancelled_tokens: int = 0

    @classmethod
    def of(cls, workload: Workload) -> "WorkloadState":
        return cls(
            running=len(workload.running),
            waiting=len(workload.waiting),
            reserved_tokens=workload.reserved_tokens,
            blocked={reason: workload.blocked[reason] for reason in Blocked},
            knobs=workload.policy.knobs,
        )


@dataclass(frozen=True, slots=True)
class StepStats:
    """Steps by kind, and how long they took; `bucket_counts` is not cumulative over the buckets."""

    prefill: int = 0
    decode: int = 0
    mixed: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    seconds_sum: float = 0.0
    bucket_counts: tuple[int, ...] = (0,) * (len(STEP_SECONDS_BUCKETS) + 1)

    @property
    def steps(self) -> int:
        return self.prefill + self.decode + self.mixed

    def plus(self, plan: Plan, generated_tokens: int, seconds: float) -> "StepStats":
        buckets = list(self.bucket_counts)
        buckets[bisect_left(STEP_SECONDS_BUCKETS, seconds)] += 1
        return StepStats(
            prefill=self.prefill + (not plan.decode),
            decode=self.decode + (not plan.chunks),
            mixed=self.mixed + bool(plan.decode and plan.chunks),
            prompt_tokens=self.prompt_tokens + plan.prompt_tokens,
            generated_tokens=self.generated_tokens + generated_tokens,
            seconds_sum=self.seconds_sum + seconds,
            bucket_counts=tuple(buckets),
        )


@dataclass(frozen=True, slots=True)
class EngineState:
    """`last_progress`: when the engine last finished a step, or woke to new work.

    `preemptions` stays 0 as long as the scheduler reserves the whole output at admission.
    """

    workloads: Mapping[str, WorkloadState]
    kv_capacity_tokens: int
    kv_used_tokens: int
    steps: StepStats
    last_progress: float
    revision: str
    preemptions: int = 0
    seconds_by_kind: Mapping[str, float] = field(
        default_factory=lambda: {"prefill": 0.0, "decode": 0.0, "mixed": 0.0}
    )
    kv_reserved_tokens: int = 0
    evictions: int = 0
    prefix_queried_tokens: int = 0
    prefix_hit_tokens: int = 0
    out_of_memory: int = 0

    @property
    def running(self) -> int:
        return sum(workload.running for workload in self.workloads.values())

    @property
    def waiting(self) -> int:
        return sum(workload.waiting for workload in self.workloads.values())
