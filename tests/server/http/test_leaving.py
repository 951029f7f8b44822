# SPDX-License-Identifier: Apache-2.0
"""Clients that leave, stall or wait: their place is free at the next step, and nothing piles up."""

import asyncio

import pytest
from tests.server.http.serving import (
    Connection,
    Serving,
    chat_body,
    new_serving,
    runtime_file,
    until,
)

from headway_api.batching import WorkloadLimits
from headway_server.service import Limits


@pytest.mark.parametrize("stream", [False, True])
async def test_client_that_leaves_frees_its_place(gated: Serving, stream: bool) -> None:
    connection = Connection(gated.app, chat_body(max_tokens=200, stream=stream))
    request = connection.open()
    await gated.step_until_busy(running=1)
    if stream:
        await until(lambda: bool(connection.sent))
    connection.leave()
    await request
    gated.gate.let_through()
    await until(lambda: gated.sample("headway_running_requests", workload="chat") == 0)
    assert gated.sample("headway_kv_tokens", state="used") == 0
    assert gated.sample("headway_requests_total", workload="chat", outcome="abort") == 1


async def test_client_that_leaves_the_queue_never_runs(loading: Serving) -> None:
    loading.start(runtime_file(limits=WorkloadLimits(max_concurrent_requests=1)))
    running = asyncio.create_task(loading.chat(max_tokens=50))
    await loading.step_until_busy(running=1)
    connection = Connection(loading.app, chat_body(max_tokens=200))
    waiting = connection.open()
    await loading.step_until_busy(running=1, waiting=1)
    connection.leave()
    await waiting
    await loading.step_until_busy(running=1)
    loading.gate.open()
    assert (await running).status_code == 200
    assert loading.state.steps.generated_tokens == 50


async def test_slow_reader_is_cancelled_at_the_bound() -> None:
    with new_serving(Limits(backlog_tokens=16)) as serving:
        serving.start()
        connection = Connection(serving.app, chat_body(max_tokens=200, stream=True))
        request = connection.open()
        await serving.step_until_busy(running=1)
        await until(lambda: bool(connection.sent))
        connection.reading.clear()
        await serving.step_until_busy(running=0)
        connection.reading.set()
        await request
        assert serving.state.steps.generated_tokens < 200
        assert '"slow_reader"' in connection.text
        assert not connection.text.endswith("[DONE]\n\n")
        await serving.client.aclose()


async def test_silent_stream_gets_comments_until_its_first_token() -> None:
    with new_serving(Limits(ping_seconds=0.01)) as serving:
        serving.start()
        connection = Connection(serving.app, chat_body(max_tokens=2, stream=True))
        request = connection.open()
        await until(lambda: connection.text.startswith(": ping\n\n: ping\n\n"))
        serving.gate.open()
        await request
        assert connection.text.endswith("data: [DONE]\n\n")
        await serving.client.aclose()


async def test_request_that_waits_too_long_is_answered_503(loading: Serving) -> None:
    limits = WorkloadLimits(max_concurrent_requests=1, queue_timeout_seconds=1)
    loading.start(runtime_file(limits=limits))
    running = asyncio.create_task(loading.chat(max_tokens=200))
    await loading.step_until_busy(running=1)
    waiting = asyncio.create_task(loading.chat(max_tokens=2))
    await loading.step_until_busy(running=1, waiting=1)
    loading.clock.ahead = 1
    await loading.step_until(waiting.done)
    refused = await waiting
    assert refused.status_code == 503
    assert "waited longer" in refused.json()["error"]["message"]
    loading.gate.open()
    await running


async def test_drain_that_takes_too_long_cuts_off_with_an_error(gated: Serving) -> None:
    connection = Connection(gated.app, chat_body(max_tokens=200, stream=True))
    request = connection.open()
    await gated.step_until_busy(running=1)
    await until(lambda: bool(connection.sent))
    await gated.service.drain(0)
    await request
    assert '"shutting_down"' in connection.text
    assert not connection.text.endswith("[DONE]\n\n")
