# SPDX-License-Identifier: Apache-2.0
"""The series by which gateways choose a replica, under vLLM's names, labels and edges.

The inference gateway's endpoint picker reads these of any server that is labelled so. They are of
the whole replica: that protocol knows no workloads.
"""

from collections.abc import Callable, Iterator
from threading import Lock

from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from headway_api.objectives import Metric
from headway_server.accounting import SERVED, Account, Outcome
from headway_server.engine.state import EngineState
from headway_server.metrics.families import Families
from headway_server.metrics.histogram import Histogram

FIRST_TOKEN = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40,
    80, 160, 640, 2560,
)  # fmt: skip
INTER_TOKEN = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
)  # fmt: skip
REQUEST = (
    0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680,
)  # fmt: skip

LATENCIES: tuple[tuple[Metric, str, str, tuple[float, ...]], ...] = (
    ("TTFT", "time_to_first_token_seconds", "Arrival to first token.", FIRST_TOKEN),
    ("ITL", "inter_token_latency_seconds", "Gap between two tokens.", INTER_TOKEN),
    ("E2E", "e2e_request_latency_seconds", "Arrival to last token.", REQUEST),
)
FINISHED_REASONS = {
    Outcome.STOP: "stop",
    Outcome.LENGTH: "length",
    Outcome.ABORT: "abort",
    Outcome.ERROR: "error",
    Outcome.DEADLINE: "error",
}
ONE_ENGINE = "0"


class VllmCollector(Collector):
    """`block_size` in tokens, None as long as no model is loaded."""

    def __init__(
        self,
        model: str,
        snapshot: Callable[[], EngineState | None],
        block_size: Callable[[], int | None],
    ) -> None:
        self._families = Families({"model_name": model, "engine": ONE_ENGINE})
        self._snapshot = snapshot
        self._block_size = block_size
        self._lock = Lock()
        self._finished = dict.fromkeys(FINISHED_REASONS.values(), 0)
        self._latencies = {metric: Histogram(edges) for metric, _, _, edges in LATENCIES}

    def record(self, account: Account) -> None:
        reason = FINISHED_REASONS.get(account.outcome)
        if reason is None:
            return
        with self._lock:
            self._finished[reason] += 1
            if account.outcome in SERVED:
                for metric, histogram in self._latencies.items():
                    for seconds in account.latencies.of(metric):
                        histogram.observe(seconds)

    def collect(self) -> Iterator[Family]:
        with self._lock:
            finished = dict(self._finished)
            latencies = {metric: each.copy() for metric, each in self._latencies.items()}
        yield self._families.counter(
            "vllm:request_success",
            "Requests that left the engine, by why.",
            ("finished_reason",),
            [((reason,), count) for reason, count in finished.items()],
        )
        for metric, name, text, _ in LATENCIES:
            yield self._families.histogram(f"vllm:{name}", text, (), [((), latencies[metric])])
        if state := self._snapshot():
            yield from self._of_the_engine(state)
            yield from self._cache_config(state)

    def _of_the_engine(self, state: EngineState) -> Iterator[Family]:
        for name, text, gauge in (
            ("num_requests_waiting", "Requests in the queue.", state.waiting),
            ("num_requests_running", "Requests in the batch.", state.running),
            (
                "kv_cache_usage_perc",
                "Used share of the KV cache, from 0 to 1.",
                state.kv_used_tokens / state.kv_capacity_tokens,
            ),
        ):
            yield self._families.gauge(f"vllm:{name}", text, (), [((), gauge)])
        computed, found = state.steps.prompt_tokens, state.prefix_hit_tokens
        preemptions = sum(each.preemptions for each in state.workloads.values())
        for name, text, count in (
            ("num_preemptions", "Times a request lost its place.", preemptions),
            ("prompt_tokens", "Prompt tokens, computed or found cached.", computed + found),
            ("generation_tokens", "Tokens generated.", state.steps.generated_tokens),
            ("prefix_cache_queries", "Prompt tokens looked up.", state.prefix_queried_tokens),
            ("prefix_cache_hits", "Prompt tokens found cached.", found),
        ):
            yield self._families.counter(f"vllm:{name}", text, (), [((), count)])

    def _cache_config(self, state: EngineState) -> Iterator[Family]:
        size = self._block_size()
        if size is not None:
            blocks = state.kv_capacity_tokens // size
            yield self._families.gauge(
                "vllm:cache_config_info",
                "The KV cache's shape.",
                ("block_size", "num_gpu_blocks"),
                [((str(size), str(blocks)), 1)],
            )
