# SPDX-License-Identifier: Apache-2.0
"""TGI's series, so that boards and alerts made for TGI go on working. Behind a flag.

TGI writes a counter's bare name, where Prometheus' client appends `_total`: both are given, and
both untyped, since to OpenMetrics a counter and its `_total` are one family of one name. What TGI
measures in phases that this engine does not have is left out.
"""

from collections.abc import Callable, Iterator, Mapping
from threading import Lock

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from headway_server.accounting import SERVED, Account, Outcome
from headway_server.engine.state import EngineState
from headway_server.metrics import edges
from headway_server.metrics.families import Families, Samples
from headway_server.metrics.histogram import Histogram

SECONDS = tuple(0.0001 * 1.5**power for power in range(1, 36))
FAILURES = {
    Outcome.REFUSED: "overloaded",
    Outcome.INVALID: "validation",
    Outcome.ABORT: "dropped",
    Outcome.ERROR: "generation",
    Outcome.DEADLINE: "incomplete",
}
HISTOGRAMS: Mapping[str, tuple[str, tuple[float, ...]]] = {
    "duration": ("Arrival to last token, seconds.", SECONDS),
    "queue_duration": ("Arrival to admission, seconds.", SECONDS),
    "inference_duration": ("Admission to last token, seconds.", SECONDS),
    "mean_time_per_token_duration": ("Inference by tokens, seconds.", SECONDS),
    "input_length": ("Tokens of a prompt.", edges.LENGTH),
    "generated_tokens": ("Tokens of an answer.", edges.LENGTH),
    "max_new_tokens": ("Tokens that an answer might have had.", edges.LENGTH),
}


class TgiCollector(Collector):
    def __init__(self, snapshot: Callable[[], EngineState | None]) -> None:
        self._families = Families({})
        self._snapshot = snapshot
        self._lock = Lock()
        self._served = 0
        self._failed = dict.fromkeys(FAILURES.values(), 0)
        self._histograms = {name: Histogram(bounds) for name, (_, bounds) in HISTOGRAMS.items()}

    def record(self, account: Account) -> None:
        with self._lock:
            if account.outcome in SERVED:
                self._served += 1
                for name, value in _measured(account):
                    self._histograms[name].observe(value)
            else:
                self._failed[FAILURES[account.outcome]] += 1

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            served, failed = self._served, dict(self._failed)
            histograms = {name: each.copy() for name, each in self._histograms.items()}
        yield from self._count("request_count", "Requests.", [((), served + sum(failed.values()))])
        yield from self._count("request_success", "Requests served.", [((), served)])
        failures = [((reason,), count) for reason, count in failed.items()]
        yield from self._count("request_failure", "Requests not served.", failures, ("err",))
        for name, (text, _) in HISTOGRAMS.items():
            yield self._families.histogram(
                f"tgi_request_{name}", text, (), [((), histograms[name])]
            )
        if state := self._snapshot():
            yield from self._of_the_engine(state)

    def _of_the_engine(self, state: EngineState) -> Iterator[Metric]:
        reserved = sum(workload.reserved_tokens for workload in state.workloads.values())
        for name, text, value in (
            ("queue_size", "Requests in the queue.", state.waiting),
            ("batch_current_size", "Requests in the batch.", state.running),
            ("batch_current_max_tokens", "Tokens the batch may come to.", reserved),
            ("batch_max_total_tokens", "Tokens a batch may come to.", state.kv_capacity_tokens),
        ):
            yield self._families.gauge(f"tgi_{name}", text, (), [((), value)])
        steps = state.steps
        by_method: Samples = [
            (("prefill",), steps.prefill + steps.mixed),
            (("decode",), steps.decode),
        ]
        for name in ("batch_inference_count", "batch_inference_success"):
            yield from self._count(name, "Steps that have ended.", by_method, ("method",))

    def _count(
        self, name: str, text: str, samples: Samples, labels: tuple[str, ...] = ()
    ) -> Iterator[Metric]:
        for written in (f"tgi_{name}", f"tgi_{name}_total"):
            yield self._families.untyped(written, text, labels, samples)


def _measured(account: Account) -> Iterator[tuple[str, float]]:
    latencies = account.latencies
    yield "input_length", account.prompt_tokens
    yield "generated_tokens", account.generated_tokens
    yield "max_new_tokens", account.max_new_tokens
    for total in latencies.e2e:
        queued = sum(latencies.queue_time)
        yield "duration", total
        yield "queue_duration", queued
        yield "inference_duration", total - queued
        yield "mean_time_per_token_duration", (total - queued) / account.generated_tokens
