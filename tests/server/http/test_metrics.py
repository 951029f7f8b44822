# SPDX-License-Identifier: Apache-2.0
"""The numbers the tuner and the operator read."""

import asyncio
from typing import Any

import pytest
from tests.server.http.serving import (
    ENVELOPE,
    TPOT,
    TTFT,
    Connection,
    Serving,
    chat_body,
    runtime_file,
    until,
)

from headway_api import metric_names
from headway_server.accounting import Outcome
from headway_server.settings import resolve

SLO = metric_names.SLO_REQUESTS_TOTAL
REQUESTS = metric_names.REQUESTS_TOTAL


def verdict_counts(serving: Serving) -> dict[tuple[str, str], float | None]:
    return {
        (objective.label, met): serving.sample(
            SLO, workload="chat", objective=objective.label, met=met
        )
        for objective in (TTFT, TPOT)
        for met in ("true", "false")
    }


async def test_every_series_is_at_zero_before_the_first_request(gated: Serving) -> None:
    assert set(verdict_counts(gated).values()) == {0}
    for outcome in Outcome:
        assert gated.sample(REQUESTS, workload="batch", outcome=outcome) == 0
    for name in (metric_names.PROMPT_TOKENS_TOTAL, metric_names.GENERATION_TOKENS_TOTAL):
        assert gated.sample(name, workload="chat") == 0
    assert gated.sample(f"{metric_names.TTFT_SECONDS}_count", workload="chat") == 0


async def test_served_request_counts_once_for_each_objective(ready: Serving) -> None:
    await ready.chat(max_tokens=4)
    counts = verdict_counts(ready)
    assert counts[TTFT.label, "true"] == counts[TPOT.label, "true"] == 1
    assert counts[TTFT.label, "false"] == counts[TPOT.label, "false"] == 0
    assert ready.sample(metric_names.GENERATION_TOKENS_TOTAL, workload="chat") == 4
    assert ready.sample(f"{metric_names.ITL_SECONDS}_count", workload="chat") == 3
    for name in (
        metric_names.TTFT_SECONDS,
        metric_names.TPOT_SECONDS,
        metric_names.E2E_SECONDS,
        metric_names.QUEUE_TIME_SECONDS,
    ):
        assert ready.sample(f"{name}_count", workload="chat") == 1


async def test_latency_is_what_the_client_waited(gated: Serving) -> None:
    request = asyncio.create_task(gated.chat(max_tokens=50))
    await gated.step_until_busy(running=1)
    gated.clock.ahead = 61
    gated.gate.open()
    await request
    counts = verdict_counts(gated)
    assert counts[TTFT.label, "true"] == 1
    assert gated.sample(f"{metric_names.E2E_SECONDS}_bucket", workload="chat", le="60.0") == 0
    assert gated.sample(f"{metric_names.E2E_SECONDS}_bucket", workload="chat", le="120.0") == 1


async def test_refused_request_misses_every_objective(loading: Serving) -> None:
    loading.start(runtime_file(max_concurrent_requests=1))
    running = asyncio.create_task(loading.chat(max_tokens=50))
    await loading.step_until_busy(running=1)
    assert (await loading.chat()).status_code == 429
    counts = verdict_counts(loading)
    assert counts[TTFT.label, "false"] == counts[TPOT.label, "false"] == 1
    assert loading.sample(REQUESTS, workload="chat", outcome="refused") == 1
    loading.gate.open()
    await running


@pytest.mark.parametrize("fields", [{"n": 2}, {"model": "other"}, {"max_tokens": 10_000}])
async def test_mistake_of_a_client_is_no_miss(ready: Serving, fields: dict[str, Any]) -> None:
    assert (await ready.chat(**fields)).status_code in (400, 404)
    assert set(verdict_counts(ready).values()) == {0}
    assert ready.sample(REQUESTS, workload="chat", outcome="invalid") == 1


async def test_client_that_leaves_is_no_miss(gated: Serving) -> None:
    connection = Connection(gated.app, chat_body(max_tokens=200, stream=True))
    request = connection.open()
    await gated.step_until_busy(running=1)
    connection.leave()
    await request
    assert set(verdict_counts(gated).values()) == {0}


async def test_labels_come_from_the_settings_never_from_a_request(ready: Serving) -> None:
    before = {s.name: len(s.samples) for s in ready.registry.collect()}
    for name in ("a", "b", "c"):
        await ready.chat(headers={"x-workload": name, "x-tenant-id": name}, model=name)
    assert {s.name: len(s.samples) for s in ready.registry.collect()} == before
    assert ready.sample(REQUESTS, workload="other", outcome="invalid") == 3


async def test_engine_is_shown_as_it_is(gated: Serving) -> None:
    request = asyncio.create_task(gated.complete("a" * 10, max_tokens=50))
    await gated.step_until_busy(running=1)
    assert gated.sample(metric_names.RUNNING_REQUESTS, workload="chat") == 1
    assert gated.sample(metric_names.WAITING_REQUESTS, workload="chat") == 0
    assert gated.sample(metric_names.RESERVED_TOKENS, workload="chat") == 60
    assert gated.sample(metric_names.KV_TOKENS, state="capacity") == 2048
    assert gated.sample(metric_names.KV_TOKENS, state="used") == 16
    assert gated.sample(metric_names.STEPS_TOTAL, kind="prefill") == 1
    assert gated.sample(metric_names.STEPS_TOTAL, kind="decode") == 0
    assert gated.sample(f"{metric_names.ITERATION_SECONDS}_count") == 1
    knob = {"workload": "chat", "knob": "maxBatchTotalTokens"}
    assert gated.sample(metric_names.KNOB_VALUE, **knob) == 2048
    gated.gate.open()
    await request


async def test_new_values_are_acknowledged_only_when_the_engine_has_them(gated: Serving) -> None:
    old = gated.service.settings
    new = resolve(runtime_file(batching={"max_batch_total_tokens": 512}), ENVELOPE)
    request = asyncio.create_task(gated.chat(max_tokens=50))
    await gated.step_until_busy(running=1)
    await until(lambda: gated.gate.holding)
    gated.service.apply(new)
    assert gated.service.settings is old
    assert gated.sample(metric_names.RUNTIME_CONFIG_INFO, revision=old.revision) == 1
    gated.gate.let_through()
    await until(lambda: gated.state.revision == new.revision)
    assert gated.service.settings is new
    assert gated.sample(metric_names.RUNTIME_CONFIG_INFO, revision=new.revision) == 1
    assert gated.sample(metric_names.RUNTIME_CONFIG_INFO, revision=old.revision) is None
    gated.gate.open()
    assert (await request).status_code == 200
