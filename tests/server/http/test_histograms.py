# SPDX-License-Identifier: Apache-2.0
"""Histograms by workload, with the objectives among their edges."""

from typing import Any

import pytest
from tests.server.http.serving import ENVELOPE, TPOT, Serving, runtime_file, until

from headway_api import metric_names
from headway_api.objectives import Metric, Objective
from headway_server.accounting import Account, Latencies, Outcome
from headway_server.metrics.histogram import Histogram, edges_for
from headway_server.metrics.requests import RequestMetrics
from headway_server.settings import resolve


def objective(metric: Metric, milliseconds: int) -> Objective:
    return Objective(metric=metric, percentile=95, threshold_milliseconds=milliseconds)


def buckets(metrics: RequestMetrics, name: str, workload: str = "chat") -> dict[str, float]:
    return {
        sample.labels["le"]: sample.value
        for family in metrics.collect()
        for sample in family.samples
        if sample.name == f"{name}_bucket" and sample.labels["workload"] == workload
    }


def count(serving: Serving, name: str, workload: str = "chat") -> float | None:
    return serving.sample(f"{name}_count", workload=workload)


def test_bucket_holds_what_is_up_to_its_edge() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.1, 2.0, 9.0):
        histogram.observe(value)
    assert histogram.buckets == [("1.0", 2), ("2.0", 4), ("+Inf", 5)]
    assert histogram.sum == pytest.approx(13.6)


@pytest.mark.parametrize("threshold", [1, 7, 50, 333, 1000, 3_600_000])
def test_edges_hold_the_multiples_of_a_threshold(threshold: int) -> None:
    edges = edges_for("TTFT", [objective("TTFT", threshold), objective("E2E", 77)], (0.5, 1.0))
    multiples = {each * threshold / 1000 for each in (0.25, 0.5, 0.75, 1, 1.5, 2, 4)}
    assert set(edges) == multiples | {0.5, 1.0}
    assert list(edges) == sorted(edges)


def test_bucket_at_the_threshold_is_the_count_of_those_that_kept_it() -> None:
    metrics = RequestMetrics("m")
    metrics.prepare({"chat": (objective("TTFT", 333),)})
    for seconds in (0.1, 0.333, 0.3331, 2.0):
        latencies = Latencies(ttft=(seconds,), e2e=(seconds,))
        metrics.record(Account("chat", Outcome.STOP, 1, 1, latencies))
    assert buckets(metrics, metric_names.TTFT_SECONDS)["0.333"] == 2
    verdicts = {
        sample.labels["met"]: sample.value
        for family in metrics.collect()
        for sample in family.samples
        if sample.name == metric_names.SLO_REQUESTS_TOTAL
    }
    assert verdicts == {"true": 2, "false": 2}


async def test_edges_follow_the_objectives_and_only_theirs_start_anew(ready: Serving) -> None:
    await ready.chat(max_tokens=3)
    await ready.chat(max_tokens=3, headers={"x-workload": "batch"})
    assert count(ready, metric_names.TTFT_SECONDS) == 1
    new = resolve(runtime_file(objectives=[objective("TTFT", 700), TPOT]), ENVELOPE)
    ready.service.apply(new)
    await until(lambda: ready.state.revision == new.revision)
    for le in ("0.175", "0.35", "0.525", "0.7", "1.05", "1.4", "2.8"):
        assert ready.sample(f"{metric_names.TTFT_SECONDS}_bucket", workload="chat", le=le) == 0
    gone = ready.sample(f"{metric_names.TTFT_SECONDS}_bucket", workload="chat", le="240.0")
    assert gone is None
    assert count(ready, metric_names.TTFT_SECONDS) == 0
    for name in (metric_names.TPOT_SECONDS, metric_names.E2E_SECONDS):
        assert count(ready, name) == 1
    assert count(ready, metric_names.TTFT_SECONDS, workload="batch") == 1
    assert ready.sample(metric_names.REQUESTS_TOTAL, workload="chat", outcome="length") == 1
    await ready.chat(max_tokens=3)
    assert count(ready, metric_names.TTFT_SECONDS) == 1


async def test_values_that_leave_the_objectives_alone_keep_the_histograms(ready: Serving) -> None:
    await ready.chat(max_tokens=3)
    new = resolve(runtime_file(batching={"max_batch_total_tokens": 512}), ENVELOPE)
    ready.service.apply(new)
    await until(lambda: ready.state.revision == new.revision)
    assert count(ready, metric_names.TTFT_SECONDS) == 1


def test_workload_that_is_gone_leaves_no_series() -> None:
    metrics = RequestMetrics("m")
    chat: dict[str, Any] = {"chat": (objective("TTFT", 100),)}
    metrics.prepare({**chat, "batch": ()})
    metrics.prepare(chat)
    metrics.record(Account("batch", Outcome.STOP, 1, 1))
    workloads = {
        sample.labels["workload"] for family in metrics.collect() for sample in family.samples
    }
    assert workloads == {"chat", "other"}
