# SPDX-License-Identifier: Apache-2.0
"""What the tuner exports about itself, for dashboards, alerts and autoscalers."""

from collections.abc import Callable, Collection

from prometheus_client import CollectorRegistry, Counter, Gauge

from headway_autotune.decision import Decision
from headway_autotune.pool import TunedPool
from headway_autotune.report import recommendation

_POOL = ("namespace", "pool")
_WORKLOAD = (*_POOL, "workload")
_OBJECTIVE = (*_WORKLOAD, "objective")

Key = tuple[str, str]


class TunerMetrics:
    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._decisions = Counter(
            "headway_autotune_decisions",
            "Decisions by action and reason.",
            (*_WORKLOAD, "action", "reason"),
            registry=registry,
        )
        self._effective = Gauge(
            "headway_autotune_effective_tokens",
            "maxBatchTotalTokens in force.",
            _WORKLOAD,
            registry=registry,
        )
        self._recommended = Gauge(
            "headway_autotune_recommended_tokens",
            "maxBatchTotalTokens that the tuner recommends.",
            _WORKLOAD,
            registry=registry,
        )
        self._attainment = Gauge(
            "headway_autotune_objective_attainment_ratio",
            "Share of the window's requests within the objective's threshold.",
            _OBJECTIVE,
            registry=registry,
        )
        self._headroom = Gauge(
            "headway_autotune_objective_headroom_ratio",
            "Attainment less the share that the objective asks for; negative is broken.",
            _OBJECTIVE,
            registry=registry,
        )
        self._age = Gauge(
            "headway_autotune_evaluation_age_seconds",
            "Seconds since the pool was last evaluated.",
            _POOL,
            registry=registry,
        )
        self._failures = Counter(
            "headway_autotune_failures",
            "Evaluations that ended in an error and left no trace in the pool's status.",
            _POOL,
            registry=registry,
        )
        self._evaluated: dict[Key, float] = {}

    def decided(self, pool: TunedPool, decision: Decision) -> None:
        key = (pool.namespace, pool.name)
        self._clear_values(key)
        self.evaluated(pool, decision.time)
        for verdict in decision.verdicts:
            self._decisions.labels(*key, verdict.workload, verdict.action, verdict.reason).inc()
        for workload in pool.workloads:
            tokens = recommendation(workload, decision)
            if tokens is not None:
                self._recommended.labels(*key, workload.name).set(tokens)
            if workload.effective is not None:
                self._effective.labels(*key, workload.name).set(workload.effective)
        for name, judgements in decision.judgements.items():
            for judgement in judgements:
                if judgement.attainment is not None:
                    labels = (*key, name, judgement.count.objective.label)
                    self._attainment.labels(*labels).set(judgement.attainment)
                    self._headroom.labels(*labels).set(judgement.attainment - judgement.target)

    def evaluated(self, pool: TunedPool, when: float | None) -> None:
        if when is not None:
            key = (pool.namespace, pool.name)
            self._evaluated[key] = when
            self._age.labels(*key).set_function(lambda: self._clock() - self._evaluated[key])

    def failed(self, namespace: str, pool: str) -> None:
        self._failures.labels(namespace, pool).inc()

    def keep_only(self, pools: Collection[Key]) -> None:
        for key in self._evaluated.keys() - set(pools):
            self.forget(*key)

    def forget(self, namespace: str, pool: str) -> None:
        """The gauges of a pool that is gone or no longer tuned."""
        self._clear_values((namespace, pool))
        self._age.remove_by_labels({"namespace": namespace, "pool": pool})
        self._evaluated.pop((namespace, pool), None)

    def _clear_values(self, key: Key) -> None:
        for gauge in (self._effective, self._recommended, self._attainment, self._headroom):
            gauge.remove_by_labels({"namespace": key[0], "pool": key[1]})
