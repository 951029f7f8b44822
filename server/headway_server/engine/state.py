# SPDX-License-Identifier: Apache-2.0
"""What the engine shows of itself: one immutable snapshot, replaced after every step and when idle.

Readers (metrics, health) take the reference and never touch the engine's own structures.
Every counter is a sum since the engine started.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from headway_server.scheduler import Blocked, Knobs, Plan, Workload

# Upper edges of the histogram of step times; the last bucket, open above, is not listed.
STEP_SECONDS_BUCKETS = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class WorkloadState:
    """One workload now, and since the start how often its queue's head was held back, by reason.

    batch_tokens: prompt and answer so far of the running requests. cancelled_tokens: made for
    requests that had been cancelled, or had passed their deadline. oldest_waiting_since: when the
    request that waits longest arrived.
    """

    running: int
    waiting: int
    reserved_tokens: int
    blocked: Mapping[Blocked, int]
    knobs: Knobs
    batch_tokens: int = 0
    preemptions: int = 0
    cancelled_tokens: int = 0
    oldest_waiting_since: float | None = None

    @classmethod
    def of(cls, workload: Workload, cancelled_tokens: int) -> "WorkloadState":
        return cls(
            running=len(workload.running),
            waiting=len(workload.waiting),
            reserved_tokens=workload.reserved_tokens,
            blocked={reason: workload.blocked[reason] for reason in Blocked},
            knobs=workload.policy.knobs,
            batch_tokens=sum(request.context for request in workload.running.values()),
            preemptions=workload.preemptions,
            cancelled_tokens=cancelled_tokens,
            oldest_waiting_since=workload.waiting.oldest_arrival,
        )


@dataclass(frozen=True, slots=True)
class StepStats:
    """Steps by kind, and how long they took; `bucket_counts` is not cumulative over the buckets.

    The seconds of a step that was launched ahead count from the end of the one before.
    """

    prefill: int = 0
    decode: int = 0
    mixed: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    seconds_sum: float = 0.0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    mixed_seconds: float = 0.0
    bucket_counts: tuple[int, ...] = (0,) * (len(STEP_SECONDS_BUCKETS) + 1)

    @property
    def steps(self) -> int:
        return self.prefill + self.decode + self.mixed

    def plus(self, plan: Plan, generated_tokens: int, seconds: float) -> "StepStats":
        buckets = list(self.bucket_counts)
        buckets[bisect_left(STEP_SECONDS_BUCKETS, seconds)] += 1
        prefill, decode = not plan.decode, not plan.chunks
        mixed = not (prefill or decode)
        return StepStats(
            prefill=self.prefill + prefill,
            decode=self.decode + decode,
            mixed=self.mixed + mixed,
            prompt_tokens=self.prompt_tokens + plan.prompt_tokens,
            generated_tokens=self.generated_tokens + generated_tokens,
            seconds_sum=self.seconds_sum + seconds,
            prefill_seconds=self.prefill_seconds + seconds * prefill,
            decode_seconds=self.decode_seconds + seconds * decode,
            mixed_seconds=self.mixed_seconds + seconds * mixed,
            bucket_counts=tuple(buckets),
        )


@dataclass(frozen=True, slots=True)
class EngineState:
    """`last_progress`: when the engine last finished a step, or woke to new work.

    kv_reserved_tokens: promised to running requests, whether they use it yet or not.
    evictions: cached blocks given to others. prefix_queried_tokens, prefix_hit_tokens: looked for
    and found at admissions. out_of_memory: steps too large for the device; step_prompt_tokens:
    what a step may compute of prompts since then.
    """

    workloads: Mapping[str, WorkloadState]
    kv_capacity_tokens: int
    kv_used_tokens: int
    steps: StepStats
    last_progress: float
    revision: str
    preemptions: int = 0
    kv_reserved_tokens: int = 0
    evictions: int = 0
    prefix_queried_tokens: int = 0
    prefix_hit_tokens: int = 0
    out_of_memory: int = 0
    step_prompt_tokens: int = 0

    @property
    def running(self) -> int:
        return sum(workload.running for workload in self.workloads.values())

    @property
    def waiting(self) -> int:
        return sum(workload.waiting for workload in self.workloads.values())
