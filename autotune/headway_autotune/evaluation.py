# SPDX-License-Identifier: Apache-2.0
"""One pool, one window, judged: the common ground of every rule that may move a budget."""

from dataclasses import dataclass

from headway_autotune.attainment import Judgement, Standing, judge
from headway_autotune.observation import Observation, WorkloadSample
from headway_autotune.pool import TunedPool, TunedWorkload

DECODE_METRICS = frozenset({"TPOT", "ITL"})


@dataclass(frozen=True, slots=True)
class JudgedWorkload:
    workload: TunedWorkload
    sample: WorkloadSample
    judgements: tuple[Judgement, ...]

    @property
    def name(self) -> str:
        return self.workload.name

    @property
    def priority(self) -> int:
        return self.workload.priority

    @property
    def budget(self) -> int:
        """In force, as the replicas themselves report it."""
        return self.sample.budget

    @property
    def breached(self) -> tuple[Judgement, ...]:
        return tuple(j for j in self.judgements if j.standing is Standing.BREACHED)

    @property
    def breached_on_decode(self) -> bool:
        return any(j.count.objective.metric in DECODE_METRICS for j in self.breached)

    @property
    def breached_on_queue(self) -> bool:
        return any(j.count.objective.metric not in DECODE_METRICS for j in self.breached)

    @property
    def claimed(self) -> int:
        """Tokens it was seen to use of its budget."""
        return min(self.budget, round(self.sample.reserved_peak))


@dataclass(frozen=True, slots=True)
class Evaluation:
    """`workloads` in the order of the pool's spec; `now` in Unix seconds."""

    pool: TunedPool
    observation: Observation
    workloads: tuple[JudgedWorkload, ...]
    now: float

    @property
    def breached(self) -> list[JudgedWorkload]:
        """Highest priority first."""
        found = [judged for judged in self.workloads if judged.breached]
        return sorted(found, key=lambda judged: (-judged.priority, judged.name))

    @property
    def reserved(self) -> float:
        """Mean tokens held by all workloads."""
        return sum(judged.sample.reserved_mean for judged in self.workloads)


def evaluate(pool: TunedPool, observation: Observation, now: float) -> Evaluation:
    return Evaluation(
        pool=pool,
        observation=observation,
        workloads=tuple(
            _judge_workload(pool, workload, observation.sample(workload.name))
            for workload in pool.workloads
        ),
        now=now,
    )


def _judge_workload(
    pool: TunedPool, workload: TunedWorkload, sample: WorkloadSample
) -> JudgedWorkload:
    judgements = tuple(
        judge(
            count,
            requests=sample.completed if count.objective.metric == "ITL" else count.total,
            min_samples=pool.autotune.min_sample_count,
            hysteresis_percent=pool.autotune.hysteresis_percent,
        )
        for count in sample.objectives
    )
    return JudgedWorkload(workload, sample, judgements)
