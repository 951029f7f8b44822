# SPDX-License-Identifier: Apache-2.0
"""The engine's snapshot as metrics, idle or busy; nothing while the model is loading."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from headway_api import metric_names
from headway_server.engine.state import STEP_SECONDS_BUCKETS, EngineState, WorkloadState
from headway_server.metrics.families import Families
from headway_server.metrics.histogram import Histogram
from headway_server.scheduler import Knobs

STEP_KINDS = ("prefill", "decode", "mixed")

GAUGES = (
    (metric_names.RUNNING_REQUESTS, "Requests in the batch.", "running"),
    (metric_names.WAITING_REQUESTS, "Requests in the queue.", "waiting"),
    (metric_names.BATCH_TOKENS, "Prompt and output tokens of the batch so far.", "batch_tokens"),
    (
        metric_names.RESERVED_TOKENS,
        "Prompt and reserved output tokens of the batch.",
        "reserved_tokens",
    ),
)
COUNTERS = (
    (metric_names.PREEMPTIONS_TOTAL, "Times a request lost its place in the batch.", "preemptions"),
    (
        metric_names.CANCELLED_TOKENS_TOTAL,
        "Tokens computed for requests that had been cancelled.",
        "cancelled_tokens",
    ),
)
ENGINE_COUNTERS = (
    (metric_names.KV_EVICTIONS_TOTAL, "Cached KV blocks given up for others.", "evictions"),
    (
        metric_names.PREFIX_CACHE_QUERIED_TOKENS_TOTAL,
        "Prompt tokens looked up in the prefix cache.",
        "prefix_queried_tokens",
    ),
    (
        metric_names.PREFIX_CACHE_HIT_TOKENS_TOTAL,
        "Prompt tokens found in the prefix cache.",
        "prefix_hit_tokens",
    ),
    (
        metric_names.OUT_OF_MEMORY_TOTAL,
        "Steps that failed for want of memory.",
        "out_of_memory",
    ),
)


class EngineCollector(Collector):
    """`clock` is the engine's."""

    def __init__(
        self,
        model: str,
        snapshot: Callable[[], EngineState | None],
        clock: Callable[[], float],
    ) -> None:
        self._families = Families({"model": model})
        self._snapshot = snapshot
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        state = self._snapshot()
        if state is None:
            return
        yield from self._workloads(state.workloads)
        yield self._ages(state.workloads)
        yield self._knobs(state.workloads)
        yield self._blocked(state.workloads)
        yield self._kv(state)
        yield self._families.gauge(
            metric_names.STEP_PROMPT_TOKENS,
            "Prompt tokens that a step may compute; fewer after a step that was too large.",
            (),
            [((), state.step_prompt_tokens)],
        )
        for name, text, field in ENGINE_COUNTERS:
            yield self._families.counter(name, text, (), [((), getattr(state, field))])
        yield from self._steps(state)
        yield self._predictions(state)
        yield self._families.gauge(
            metric_names.RUNTIME_CONFIG_INFO,
            "The revision of the HOT values that the engine runs with.",
            ("revision",),
            [((state.revision,), 1)],
        )

    def _workloads(self, workloads: Mapping[str, WorkloadState]) -> Iterator[Metric]:
        for make, table in ((self._families.gauge, GAUGES), (self._families.counter, COUNTERS)):
            for name, text, field in table:
                samples = [((each,), getattr(state, field)) for each, state in workloads.items()]
                yield make(name, text, ("workload",), samples)

    def _ages(self, workloads: Mapping[str, WorkloadState]) -> Metric:
        now = self._clock()
        ages = {
            workload: 0.0
            if state.oldest_waiting_since is None
            else max(0.0, now - state.oldest_waiting_since)
            for workload, state in workloads.items()
        }
        return self._families.gauge(
            metric_names.OLDEST_WAITING_SECONDS,
            "Age of the oldest request in the queue, 0 where there is none.",
            ("workload",),
            [((workload,), age) for workload, age in ages.items()],
        )

    def _knobs(self, workloads: Mapping[str, WorkloadState]) -> Metric:
        samples = [
            ((workload, knob), value)
            for workload, state in workloads.items()
            for knob, value in _values_of(state.knobs)
        ]
        labels = ("workload", "knob")
        return self._families.gauge(
            metric_names.KNOB_VALUE, "HOT values in force.", labels, samples
        )

    def _blocked(self, workloads: Mapping[str, WorkloadState]) -> Metric:
        return self._families.counter(
            metric_names.ADMISSION_BLOCKED_TOTAL,
            "Steps in which the head of a queue was held back.",
            ("workload", "reason"),
            [
                ((workload, reason.value), count)
                for workload, state in workloads.items()
                for reason, count in state.blocked.items()
            ],
        )

    def _kv(self, state: EngineState) -> Metric:
        return self._families.gauge(
            metric_names.KV_TOKENS,
            "KV cache of this replica in tokens.",
            ("state",),
            [
                (("capacity",), state.kv_capacity_tokens),
                (("reserved",), state.kv_reserved_tokens),
                (("used",), state.kv_used_tokens),
            ],
        )

    def _predictions(self, state: EngineState) -> Metric:
        samples = []
        for predictor, hits in state.length_hits.items():
            samples.append(((predictor, "right"), hits.exact))
            samples.append(((predictor, "adjacent"), hits.adjacent - hits.exact))
            samples.append(((predictor, "other"), hits.predictions - hits.adjacent))
        return self._families.counter(
            metric_names.LENGTH_PREDICTIONS_TOTAL,
            "Expected lengths of answers by the bin they named.",
            ("predictor", "bin"),
            samples,
        )

    def _steps(self, state: EngineState) -> Iterator[Metric]:
        steps = state.steps
        yield self._families.counter(
            metric_names.STEPS_TOTAL,
            "Steps by what was in them.",
            ("kind",),
            [((kind,), getattr(steps, kind)) for kind in STEP_KINDS],
        )
        yield self._families.counter(
            metric_names.STEP_SECONDS_TOTAL,
            "Time of steps by what was in them.",
            ("kind",),
            [((kind,), getattr(steps, f"{kind}_seconds")) for kind in STEP_KINDS],
        )
        yield self._families.counter(
            metric_names.STEP_TOKENS_TOTAL,
            "Tokens that steps computed; those of answers still under way are among them.",
            ("kind",),
            [(("prompt",), steps.prompt_tokens), (("generated",), steps.generated_tokens)],
        )
        taken = Histogram(STEP_SECONDS_BUCKETS, steps.bucket_counts, steps.seconds_sum)
        yield self._families.histogram(
            metric_names.ITERATION_SECONDS, "Time of a step.", (), [((), taken)]
        )


def _values_of(knobs: Knobs) -> Iterator[tuple[str, int]]:
    yield "maxBatchTotalTokens", knobs.max_batch_total_tokens
    yield "maxBatchPrefillTokens", knobs.max_batch_prefill_tokens
    yield "waitingServedRatioPercent", knobs.waiting_served_ratio_percent
    yield "maxWaitingTokens", knobs.max_waiting_tokens
