# SPDX-License-Identifier: Apache-2.0
"""What Prometheus reads from a server. One instance a process, on a registry of its own.

Counters and histograms are written when a request ends; everything about the engine is read from
its snapshot at scrape time, so that a scrape never touches the engine. Label values come from the
settings, never from a request.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from headway_api import metric_names
from headway_api.objectives import Objective
from headway_server.accounting import SERVED, Account, Outcome, verdicts
from headway_server.engine.state import STEP_SECONDS_BUCKETS, EngineState, StepStats, WorkloadState
from headway_server.runtime_watch import Rejection
from headway_server.scheduler import Knobs

NO_WORKLOAD = "other"

# Seconds. The thresholds of the built-in classes and their halves and doubles are among the edges.
WAIT_BUCKETS = (
    0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.25, 0.375, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 15, 30, 60,
    120, 300, 900,
)  # fmt: skip
TOKEN_BUCKETS = (
    0.002, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.12, 0.16,
    0.2, 0.3, 0.5, 1, 2, 5, 10,
)  # fmt: skip


class RequestMetrics:
    """What is counted per request."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, text, ["workload"], registry=registry, buckets=buckets)

        self._objectives: Mapping[str, tuple[Objective, ...]] = {}
        self._verdicts = counter(
            metric_names.SLO_REQUESTS_TOTAL,
            "Samples by objective and whether they kept it.",
            "workload", "objective", "met",
        )  # fmt: skip
        self._requests = counter(
            metric_names.REQUESTS_TOTAL, "Requests by how they ended.", "workload", "outcome"
        )
        self._prompt_tokens = counter(
            metric_names.PROMPT_TOKENS_TOTAL, "Tokens of prompts.", "workload"
        )
        self._generated_tokens = counter(
            metric_names.GENERATION_TOKENS_TOTAL, "Tokens of answers.", "workload"
        )
        self._ttft = histogram(metric_names.TTFT_SECONDS, "Arrival to first token.", WAIT_BUCKETS)
        self._tpot = histogram(
            metric_names.TPOT_SECONDS, "Mean per token after the first.", TOKEN_BUCKETS
        )
        self._itl = histogram(metric_names.ITL_SECONDS, "Gap between two tokens.", TOKEN_BUCKETS)
        self._queue_time = histogram(
            metric_names.QUEUE_TIME_SECONDS, "Arrival to admission.", WAIT_BUCKETS
        )
        self._e2e = histogram(metric_names.E2E_SECONDS, "Arrival to last token.", WAIT_BUCKETS)

    def prepare(self, objectives: Mapping[str, tuple[Objective, ...]]) -> None:
        """Creates every series of these workloads at 0: an increase needs a start."""
        self._objectives = objectives
        for workload in (*objectives, NO_WORKLOAD):
            for outcome in Outcome:
                self._requests.labels(workload, outcome)
        for workload, promised in objectives.items():
            for family in (self._prompt_tokens, self._generated_tokens, self._ttft, self._tpot):
                family.labels(workload)
            for histogram in (self._itl, self._queue_time, self._e2e):
                histogram.labels(workload)
            for objective in promised:
                for met in ("true", "false"):
                    self._verdicts.labels(workload, objective.label, met)

    def record(self, account: Account) -> None:
        workload = account.workload
        if workload not in self._objectives:
            self._requests.labels(NO_WORKLOAD, account.outcome).inc()
            return
        self._requests.labels(workload, account.outcome).inc()
        self._prompt_tokens.labels(workload).inc(account.prompt_tokens)
        self._generated_tokens.labels(workload).inc(account.generated_tokens)
        for label, met in verdicts(account, self._objectives[workload]):
            self._verdicts.labels(workload, label, str(met).lower()).inc()
        if account.outcome in SERVED:
            self._observe(account)

    def _observe(self, account: Account) -> None:
        latencies = account.latencies
        for histogram, samples in (
            (self._ttft, latencies.ttft),
            (self._tpot, latencies.tpot),
            (self._itl, latencies.itl),
            (self._queue_time, latencies.queue_time),
            (self._e2e, latencies.e2e),
        ):
            child = histogram.labels(account.workload)
            for seconds in samples:
                child.observe(seconds)


class EngineCollector(Collector):
    """The engine's snapshot as metrics; nothing while the model is loading."""

    def __init__(self, snapshot: Callable[[], EngineState | None]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        state = self._snapshot()
        if state is None:
            return
        yield from _requests(state.workloads)
        yield _knobs(state.workloads)
        yield _blocked(state.workloads)
        yield _gauge(
            metric_names.KV_TOKENS,
            "KV cache of this replica in tokens.",
            ["state"],
            [
                (["capacity"], state.kv_capacity_tokens),
                (["used"], state.kv_used_tokens),
            ],
        )
        yield _counter(
            metric_names.PREEMPTIONS_TOTAL, "Requests that lost their place.", [],
            [([], state.preemptions)],
        )  # fmt: skip
        yield from _steps(state.steps)
        yield _gauge(
            metric_names.RUNTIME_CONFIG_INFO,
            "The revision of the HOT values that the engine runs with.",
            ["revision"],
            [([state.revision], 1)],
        )


class RejectionCollector(Collector):
    """The newest runtime file, while it is refused."""

    def __init__(self, rejection: Callable[[], Rejection | None]) -> None:
        self._rejection = rejection

    def collect(self) -> Iterator[Metric]:
        rejection = self._rejection()
        yield _gauge(
            metric_names.RUNTIME_CONFIG_REJECTED,
            "1 while the newest runtime file is refused.",
            ["revision", "field"],
            [([rejection.revision, rejection.field], 1)] if rejection else [],
        )


def new_registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


Samples = Iterable[tuple[list[str], float]]


def _gauge(name: str, text: str, labels: list[str], samples: Samples) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _counter(name: str, text: str, labels: list[str], samples: Samples) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _requests(workloads: Mapping[str, WorkloadState]) -> Iterator[Metric]:
    for name, text, field in (
        (metric_names.RUNNING_REQUESTS, "Requests in the batch.", "running"),
        (metric_names.WAITING_REQUESTS, "Requests in the queue.", "waiting"),
        (
            metric_names.RESERVED_TOKENS,
            "Prompt and reserved output tokens of the batch.",
            "reserved_tokens",
        ),
    ):
        samples = [([workload], getattr(state, field)) for workload, state in workloads.items()]
        yield _gauge(name, text, ["workload"], samples)


def _knobs(workloads: Mapping[str, WorkloadState]) -> Metric:
    samples = (
        ([workload, knob], value)
        for workload, state in workloads.items()
        for knob, value in _values_of(state.knobs)
    )
    return _gauge(metric_names.KNOB_VALUE, "HOT values in force.", ["workload", "knob"], samples)


def _values_of(knobs: Knobs) -> Iterator[tuple[str, int]]:
    yield "maxBatchTotalTokens", knobs.max_batch_total_tokens
    yield "maxBatchPrefillTokens", knobs.max_batch_prefill_tokens
    yield "waitingServedRatioPercent", knobs.waiting_served_ratio_percent
    yield "maxWaitingTokens", knobs.max_waiting_tokens


def _blocked(workloads: Mapping[str, WorkloadState]) -> Metric:
    samples = (
        ([workload, reason], count)
        for workload, state in workloads.items()
        for reason, count in state.blocked.items()
    )
    return _counter(
        metric_names.ADMISSION_BLOCKED_TOTAL,
        "Steps in which the head of a queue was held back.",
        ["workload", "reason"],
        samples,
    )


def _steps(steps: StepStats) -> Iterator[Metric]:
    yield _counter(
        metric_names.STEPS_TOTAL,
        "Steps by what was in them.",
        ["kind"],
        [(["prefill"], steps.prefill), (["decode"], steps.decode), (["mixed"], steps.mixed)],
    )
    family = HistogramMetricFamily(metric_names.ITERATION_SECONDS, "Time of a step.")
    edges = [*map(str, STEP_SECONDS_BUCKETS), "+Inf"]
    total, buckets = 0, []
    for edge, count in zip(edges, steps.bucket_counts, strict=True):
        total += count
        buckets.append((edge, total))
    family.add_metric([], buckets, steps.seconds_sum)
    yield family
