# SPDX-License-Identifier: Apache-2.0
"""A real scrape of a real server process: what is there, idle and busy, and whether it adds up."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families
from tests.server.http.server_process import MODEL, Serving, serving
from tests.waiting import wait_until

from headway_api import metric_names

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"
OURS = {value for name, value in vars(metric_names).items() if name.isupper()}
GATEWAYS = {
    "vllm:num_requests_waiting",
    "vllm:num_requests_running",
    "vllm:kv_cache_usage_perc",
    "vllm:cache_config_info",
    "vllm:num_preemptions_total",
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:request_success_total",
    "vllm:time_to_first_token_seconds",
    "vllm:inter_token_latency_seconds",
    "vllm:e2e_request_latency_seconds",
}
TGIS = {
    "tgi_request_count",
    "tgi_request_count_total",
    "tgi_request_success",
    "tgi_request_failure",
    "tgi_request_duration",
    "tgi_request_queue_duration",
    "tgi_request_inference_duration",
    "tgi_request_mean_time_per_token_duration",
    "tgi_request_input_length",
    "tgi_request_generated_tokens",
    "tgi_request_max_new_tokens",
    "tgi_batch_inference_count",
    "tgi_batch_inference_success",
    "tgi_queue_size",
    "tgi_batch_current_size",
    "tgi_batch_current_max_tokens",
    "tgi_batch_max_total_tokens",
}
TABLES = ("headway_", "vllm:", "tgi_")

Series = tuple[str, frozenset[tuple[str, str]]]


@pytest.fixture(scope="module")
def up() -> Iterator[Serving]:
    with serving("--tgi-metrics", "--kv-cache-capacity-tokens", "4096") as up:
        yield up


def families(up: Serving) -> list[Metric]:
    return list(text_string_to_metric_families(httpx.get(up.metrics).text))


def names(found: list[Metric]) -> set[str]:
    """Of families, with the ending that counters have in the exposition."""
    return {f"{each.name}_total" if each.type == "counter" else each.name for each in found}


def values(up: Serving) -> dict[Series, float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families(up)
        for sample in family.samples
        if sample.name.startswith(TABLES)
    }


def value(up: Serving, name: str, **labels: str) -> float:
    return values(up)[name, frozenset({"model": MODEL, **labels}.items())]


def gateway_value(up: Serving, name: str, **labels: str) -> float:
    common = {"model_name": MODEL, "engine": "0"}
    return values(up)[f"vllm:{name}", frozenset({**common, **labels}.items())]


def tgi_value(up: Serving, name: str, **labels: str) -> float:
    return values(up)[f"tgi_{name}", frozenset(labels.items())]


def running(up: Serving) -> float:
    return value(up, metric_names.RUNNING_REQUESTS, workload="default")


def complete(up: Serving, **fields: Any) -> httpx.Response:
    headers = fields.pop("headers", {})
    body = {"model": MODEL, "prompt": "abcdef", "max_tokens": 5, **fields}
    return httpx.post(f"{up.url}/v1/completions", json=body, headers=headers, timeout=60)


def test_every_family_is_published_before_the_first_request(up: Serving) -> None:
    found = names(families(up))
    assert found >= OURS | GATEWAYS | TGIS
    strangers = {name for name in found if name.startswith(TABLES)} - OURS - GATEWAYS - TGIS
    assert {name.removesuffix("_total") for name in strangers} <= TGIS


def test_all_series_of_ours_name_the_model_and_those_of_gateways_the_engine(up: Serving) -> None:
    for name, labels in values(up):
        if name.startswith("headway_"):
            assert ("model", MODEL) in labels
        if name.startswith("vllm:"):
            assert labels >= {("model_name", MODEL), ("engine", "0")}


def test_series_are_the_same_idle_busy_and_whatever_is_asked(up: Serving) -> None:
    idle = set(values(up))
    body = {"model": MODEL, "prompt": "abc", "max_tokens": 2000, "stream": True}
    with httpx.stream("POST", f"{up.url}/v1/completions", json=body, timeout=60):
        wait_until(lambda: running(up) == 1, "the request to run")
        assert set(values(up)) == idle
    for number in range(3):
        unheard_of = f"w{number}"
        headers = {"x-workload": unheard_of, "x-tenant-id": unheard_of, "x-request-id": unheard_of}
        complete(up, headers=headers)
        complete(up, model=unheard_of, user=unheard_of)
        complete(up, prompt=unheard_of * 5000)
    wait_until(
        lambda: tgi_value(up, "request_failure", err="dropped") == 1, "the dropped request's count"
    )
    wait_until(lambda: running(up) == 0, "an empty batch")
    assert set(values(up)) == idle


def test_counters_agree_with_what_was_served(up: Serving) -> None:
    before = values(up)
    usages = [complete(up, max_tokens=tokens).json()["usage"] for tokens in (1, 5, 9)]
    prompts = sum(usage["prompt_tokens"] for usage in usages)
    served = before["tgi_request_success", frozenset()]
    wait_until(lambda: tgi_value(up, "request_success") == served + 3, "three successes")
    after = values(up)

    def grown(name: str, **labels: str) -> float:
        if name.startswith("headway_"):
            labels = {"model": MODEL, **labels}
        if name.startswith("vllm:"):
            labels = {"model_name": MODEL, "engine": "0", **labels}
        series = (name, frozenset(labels.items()))
        return after[series] - before[series]

    one = {"workload": "default"}
    assert prompts > 0
    assert grown(metric_names.PROMPT_TOKENS_TOTAL, **one) == prompts
    assert grown(metric_names.GENERATION_TOKENS_TOTAL, **one) == 15
    assert grown(metric_names.TOKENS_TOTAL, **one) == prompts + 15
    assert grown(metric_names.REQUESTS_TOTAL, outcome="length", **one) == 3
    for name, count in (
        (metric_names.TTFT_SECONDS, 3),
        (metric_names.E2E_SECONDS, 3),
        (metric_names.QUEUE_TIME_SECONDS, 3),
        (metric_names.TPOT_SECONDS, 2),
        (metric_names.ITL_SECONDS, 4 + 8),
    ):
        assert grown(f"{name}_count", **one) == count
    assert grown(f"{metric_names.PROMPT_LENGTH_TOKENS}_sum", **one) == prompts
    assert grown(f"{metric_names.OUTPUT_LENGTH_TOKENS}_sum", **one) == 15
    assert grown(f"{metric_names.OUTPUT_LENGTH_TOKENS}_bucket", le="5.0", **one) == 2
    assert grown(metric_names.STEP_TOKENS_TOTAL, kind="generated") == 15
    assert grown(metric_names.STEP_TOKENS_TOTAL, kind="prompt") == prompts
    assert grown(metric_names.STEPS_TOTAL, kind="prefill") == 3
    seconds = [grown(metric_names.STEP_SECONDS_TOTAL, kind=kind) for kind in ("prefill", "decode")]
    assert min(seconds) > 0
    assert sum(seconds) == pytest.approx(grown(f"{metric_names.ITERATION_SECONDS}_sum"))
    assert grown("vllm:prompt_tokens_total") == prompts
    assert grown("vllm:generation_tokens_total") == 15
    assert grown("vllm:request_success_total", finished_reason="length") == 3
    assert grown("vllm:time_to_first_token_seconds_count") == 3
    assert grown("vllm:inter_token_latency_seconds_count") == 12
    assert grown("vllm:e2e_request_latency_seconds_count") == 3
    for name in ("tgi_request_count", "tgi_request_count_total", "tgi_request_success"):
        assert grown(name) == 3
    assert grown("tgi_request_input_length_sum") == prompts
    assert (
        grown("tgi_request_generated_tokens_sum") == grown("tgi_request_max_new_tokens_sum") == 15
    )
    assert grown("tgi_batch_inference_count", method="prefill") == 3
    assert grown("tgi_batch_inference_count", method="decode") == 12


def test_prompt_that_was_seen_before_is_a_hit(up: Serving) -> None:
    complete(up, prompt="the same words again, " * 4)
    before = value(up, metric_names.PREFIX_CACHE_QUERIED_TOKENS_TOTAL)
    found = value(up, metric_names.PREFIX_CACHE_HIT_TOKENS_TOTAL)
    usage = complete(up, prompt="the same words again, " * 4).json()["usage"]
    wait_until(lambda: running(up) == 0, "an empty batch")
    queried = value(up, metric_names.PREFIX_CACHE_QUERIED_TOKENS_TOTAL) - before
    hits = value(up, metric_names.PREFIX_CACHE_HIT_TOKENS_TOTAL) - found
    assert 0 < hits <= queried <= usage["prompt_tokens"]
    assert gateway_value(up, "prefix_cache_hits_total") == found + hits
    assert gateway_value(up, "prefix_cache_queries_total") == before + queried


def test_requests_that_are_not_served_are_counted_by_why(up: Serving) -> None:
    before = values(up)
    assert complete(up, n=-1).status_code == 400
    after = values(up)
    ours = frozenset({"model": MODEL, "workload": "default", "outcome": "invalid"}.items())
    theirs = frozenset({"err": "validation"}.items())
    for series in ((metric_names.REQUESTS_TOTAL, ours), ("tgi_request_failure", theirs)):
        assert after[series] == before[series] + 1


def test_gateway_reads_the_caches_shape_and_use(up: Serving) -> None:
    config = {"block_size": "16", "num_gpu_blocks": "256"}
    assert gateway_value(up, "cache_config_info", **config) == 1
    assert gateway_value(up, "kv_cache_usage_perc") == 0
    assert tgi_value(up, "batch_max_total_tokens") == 4096


def test_scrape_in_the_form_that_prometheus_prefers_is_valid_too(up: Serving) -> None:
    accepted = {"Accept": "application/openmetrics-text; version=1.0.0"}
    text = httpx.get(up.metrics, headers=accepted).text
    found = list(openmetrics_families(text))  # type: ignore[no-untyped-call]
    assert names(found) >= OURS | GATEWAYS | TGIS


def test_every_family_is_documented_and_nothing_else() -> None:
    """The table has counters by their exposition name."""
    written = set(re.findall(r"`((?:headway_|vllm:|tgi_)[a-z0-9_]+)", DOCS.read_text()))
    assert written >= OURS | GATEWAYS | TGIS
    assert {name for name in written if name.startswith(("headway_", "vllm:"))} <= OURS | GATEWAYS
