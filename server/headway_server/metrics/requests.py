# SPDX-License-Identifier: Apache-2.0
"""What is counted per request, by workload, when a request ends.

Every series of a workload is there at 0 from the moment its settings are, since an increase needs
a start. Written on the event loop, read on the threads that answer scrapes.
"""

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from threading import Lock

from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from headway_api import metric_names
from headway_api.objectives import Metric, Objective
from headway_server.accounting import Account, Outcome
from headway_server.metrics.families import Families
from headway_server.metrics.histogram import Histogram
from headway_server.metrics.sums import WorkloadSums

NO_WORKLOAD = "other"

COUNTERS: tuple[tuple[str, str, Callable[[WorkloadSums], int]], ...] = (
    (metric_names.PROMPT_TOKENS_TOTAL, "Tokens of prompts.", attrgetter("prompt_tokens")),
    (metric_names.GENERATION_TOKENS_TOTAL, "Tokens of answers.", attrgetter("generated_tokens")),
    (
        metric_names.TOKENS_TOTAL,
        "Tokens of prompts and answers.",
        lambda sums: sums.prompt_tokens + sums.generated_tokens,
    ),
)
LENGTHS = (
    (metric_names.PROMPT_LENGTH_TOKENS, "Tokens of a prompt.", "prompt_lengths"),
    (metric_names.OUTPUT_LENGTH_TOKENS, "Tokens of an answer.", "output_lengths"),
)
LATENCIES: tuple[tuple[str, str, Metric], ...] = (
    (metric_names.TTFT_SECONDS, "Arrival to first token.", "TTFT"),
    (metric_names.TPOT_SECONDS, "Mean per token after the first.", "TPOT"),
    (metric_names.ITL_SECONDS, "Gap between two tokens.", "ITL"),
    (metric_names.QUEUE_TIME_SECONDS, "Arrival to admission.", "QueueTime"),
    (metric_names.E2E_SECONDS, "Arrival to last token.", "E2E"),
)


class RequestMetrics(Collector):
    def __init__(self, model: str) -> None:
        self._families = Families({"model": model})
        self._listeners: list[Callable[[Account], None]] = []
        self._lock = Lock()
        self._workloads: dict[str, WorkloadSums] = {}
        self._strangers = dict.fromkeys(Outcome, 0)

    def listen(self, record: Callable[[Account], None]) -> None:
        """`record` is called with every request as well: for who counts by rules of his own."""
        self._listeners.append(record)

    def prepare(self, objectives: Mapping[str, tuple[Objective, ...]]) -> None:
        """These are the workloads from now on; the series of others end."""
        with self._lock:
            known, self._workloads = self._workloads, {}
            for workload, promised in objectives.items():
                sums = self._workloads[workload] = known.get(workload) or WorkloadSums(promised)
                sums.judge_by(promised)

    def record(self, account: Account) -> None:
        with self._lock:
            if sums := self._workloads.get(account.workload):
                sums.add(account)
            else:
                self._strangers[account.outcome] += 1
        for record in self._listeners:
            record(account)

    def collect(self) -> Iterator[Family]:
        with self._lock:
            workloads = {name: sums.copy() for name, sums in self._workloads.items()}
            strangers = dict(self._strangers)
        yield self._outcomes(workloads, strangers)
        yield self._verdicts(workloads)
        for name, text, count in COUNTERS:
            samples = [((workload,), count(sums)) for workload, sums in workloads.items()]
            yield self._families.counter(name, text, ("workload",), samples)
        for name, text, field in LENGTHS:
            lengths = [((workload,), getattr(sums, field)) for workload, sums in workloads.items()]
            yield self._families.histogram(name, text, ("workload",), lengths)
        for name, text, metric in LATENCIES:
            yield self._families.histogram(name, text, ("workload",), _latencies(workloads, metric))

    def _outcomes(
        self, workloads: Mapping[str, WorkloadSums], strangers: Mapping[Outcome, int]
    ) -> Family:
        counted = {name: sums.outcomes for name, sums in workloads.items()}
        return self._families.counter(
            metric_names.REQUESTS_TOTAL,
            "Requests by how they ended.",
            ("workload", "outcome"),
            [
                ((workload, outcome.value), count)
                for workload, outcomes in (counted | {NO_WORKLOAD: strangers}).items()
                for outcome, count in outcomes.items()
            ],
        )

    def _verdicts(self, workloads: Mapping[str, WorkloadSums]) -> Family:
        return self._families.counter(
            metric_names.SLO_REQUESTS_TOTAL,
            "Samples by objective and whether they kept it.",
            ("workload", "objective", "met"),
            [
                ((workload, label, str(met).lower()), count)
                for workload, sums in workloads.items()
                for (label, met), count in sums.verdicts.items()
            ],
        )


def _latencies(
    workloads: Mapping[str, WorkloadSums], metric: Metric
) -> list[tuple[tuple[str, ...], Histogram]]:
    return [((workload,), sums.latencies[metric]) for workload, sums in workloads.items()]
