# SPDX-License-Identifier: Apache-2.0
"""Each figure of the engine's snapshot under its name and labels."""

from collections.abc import Iterable

import pytest
from prometheus_client.core import Metric

from headway_api import metric_names as names
from headway_server.engine.state import EngineState, StepStats, WorkloadState
from headway_server.metrics import EngineCollector, TgiCollector, VllmCollector
from headway_server.scheduler import Blocked, Knobs
from headway_server.scheduler.bins_accuracy import BinHits

CHAT = WorkloadState(
    running=3,
    waiting=2,
    reserved_tokens=900,
    blocked=dict.fromkeys(Blocked, 4),
    knobs=Knobs(1000, 200, 30, 20),
    oldest_waiting_since=95.0,
    batch_tokens=450,
    preemptions=6,
    cancelled_tokens=7,
)
BATCH = WorkloadState(
    running=1, waiting=0, reserved_tokens=100, blocked={}, knobs=Knobs(500, 100, 0, 0)
)
STATE = EngineState(
    workloads={"chat": CHAT, "batch": BATCH},
    kv_capacity_tokens=1600,
    kv_used_tokens=400,
    steps=StepStats(
        prefill=1,
        decode=10,
        mixed=2,
        prompt_tokens=50,
        generated_tokens=60,
        prefill_seconds=0.5,
        decode_seconds=2.0,
        mixed_seconds=1.0,
    ),
    last_progress=99.0,
    revision="r1",
    kv_reserved_tokens=1000,
    evictions=11,
    prefix_queried_tokens=80,
    prefix_hit_tokens=30,
    out_of_memory=1,
    step_prompt_tokens=256,
    length_hits={"History": BinHits(predictions=10, exact=5, adjacent=8)},
)


def samples(families: Iterable[Metric]) -> dict[tuple[str, ...], float]:
    """By name and the values of the labels but the first, which says whose it is."""
    return {
        (sample.name, *list(sample.labels.values())[1:]): sample.value
        for family in families
        for sample in family.samples
    }


def ours() -> dict[tuple[str, ...], float]:
    return samples(EngineCollector("m", lambda: STATE, lambda: 100.0).collect())


@pytest.mark.parametrize(
    ("series", "value"),
    [
        ((names.RUNNING_REQUESTS, "chat"), 3),
        ((names.WAITING_REQUESTS, "chat"), 2),
        ((names.OLDEST_WAITING_SECONDS, "chat"), 5),
        ((names.OLDEST_WAITING_SECONDS, "batch"), 0),
        ((names.BATCH_TOKENS, "chat"), 450),
        ((names.RESERVED_TOKENS, "batch"), 100),
        ((names.PREEMPTIONS_TOTAL, "chat"), 6),
        ((names.CANCELLED_TOKENS_TOTAL, "chat"), 7),
        ((names.CANCELLED_TOKENS_TOTAL, "batch"), 0),
        ((names.KNOB_VALUE, "chat", "maxBatchTotalTokens"), 1000),
        ((names.KNOB_VALUE, "chat", "maxBatchPrefillTokens"), 200),
        ((names.KNOB_VALUE, "chat", "waitingServedRatioPercent"), 30),
        ((names.KNOB_VALUE, "chat", "maxWaitingTokens"), 20),
        ((names.KV_TOKENS, "capacity"), 1600),
        ((names.KV_TOKENS, "reserved"), 1000),
        ((names.KV_TOKENS, "used"), 400),
        ((names.KV_EVICTIONS_TOTAL,), 11),
        ((names.PREFIX_CACHE_QUERIED_TOKENS_TOTAL,), 80),
        ((names.PREFIX_CACHE_HIT_TOKENS_TOTAL,), 30),
        ((names.OUT_OF_MEMORY_TOTAL,), 1),
        ((names.STEP_PROMPT_TOKENS,), 256),
        ((names.STEPS_TOTAL, "mixed"), 2),
        ((names.STEP_SECONDS_TOTAL, "prefill"), 0.5),
        ((names.STEP_SECONDS_TOTAL, "decode"), 2),
        ((names.STEP_SECONDS_TOTAL, "mixed"), 1),
        ((names.STEP_TOKENS_TOTAL, "prompt"), 50),
        ((names.STEP_TOKENS_TOTAL, "generated"), 60),
        ((names.LENGTH_PREDICTIONS_TOTAL, "History", "right"), 5),
        ((names.LENGTH_PREDICTIONS_TOTAL, "History", "adjacent"), 3),
        ((names.LENGTH_PREDICTIONS_TOTAL, "History", "other"), 2),
        ((names.RUNTIME_CONFIG_INFO, "r1"), 1),
    ],
    ids=str,
)
def test_snapshot_is_shown_under_our_names(series: tuple[str, ...], value: float) -> None:
    assert ours()[series] == value


def test_each_reason_for_holding_a_queue_back_has_a_series() -> None:
    shown = ours()
    for reason in Blocked:
        assert shown[names.ADMISSION_BLOCKED_TOTAL, "chat", reason.value] == 4


def test_time_runs_on_for_a_queue_while_no_step_ends() -> None:
    times = iter((100.0, 160.0))
    collector = EngineCollector("m", lambda: STATE, lambda: next(times))
    for age in (5, 65):
        assert samples(collector.collect())[names.OLDEST_WAITING_SECONDS, "chat"] == age


def test_gateways_see_the_sums_over_workloads() -> None:
    shown = samples(VllmCollector("m", lambda: STATE, lambda: 16).collect())
    expected = {
        "num_requests_waiting": 2,
        "num_requests_running": 4,
        "kv_cache_usage_perc": 0.25,
        "num_preemptions_total": 6,
        "prompt_tokens_total": 80,
        "generation_tokens_total": 60,
        "prefix_cache_queries_total": 80,
        "prefix_cache_hits_total": 30,
    }
    assert {name: shown[f"vllm:{name}", "0"] for name in expected} == expected
    assert shown["vllm:cache_config_info", "0", "16", "100"] == 1


def test_tgis_gauges_are_of_the_whole_replica() -> None:
    found = {
        sample.name: sample.value
        for family in TgiCollector(lambda: STATE).collect()
        for sample in family.samples
        if not sample.labels
    }
    assert found["tgi_queue_size"] == 2
    assert found["tgi_batch_current_size"] == 4
    assert found["tgi_batch_current_max_tokens"] == 1000
    assert found["tgi_batch_max_total_tokens"] == 1600


def test_engine_that_is_not_there_yet_has_no_series() -> None:
    assert list(EngineCollector("m", lambda: None, lambda: 0.0).collect()) == []
    loading = VllmCollector("m", lambda: None, lambda: None).collect()
    assert "vllm:num_requests_waiting" not in {family.name for family in loading}
