# SPDX-License-Identifier: Apache-2.0
"""/health and /ready tell a process that works from one that only listens."""

import asyncio

import pytest
from tests.server.http.serving import Serving, new_serving, until

from headway_server.runner.protocol import RunnerLost
from headway_server.service import Limits


async def probe(serving: Serving, path: str) -> tuple[int, str]:
    response = await serving.client.get(path)
    return response.status_code, response.json()["status"]


async def test_loading_is_alive_but_not_ready(loading: Serving) -> None:
    assert await probe(loading, "/health") == (200, "ok")
    assert await probe(loading, "/ready") == (503, "loading")


async def test_loaded_is_both(ready: Serving) -> None:
    assert await probe(ready, "/health") == (200, "ok")
    assert await probe(ready, "/ready") == (200, "ready")


async def test_draining_is_alive_but_not_ready(ready: Serving) -> None:
    await ready.service.drain(1)
    assert await probe(ready, "/health") == (200, "ok")
    assert await probe(ready, "/ready") == (503, "draining")


async def test_step_that_never_ends_is_found_out() -> None:
    with new_serving(Limits(stall_seconds=5)) as serving:
        serving.start()
        request = asyncio.create_task(serving.chat(max_tokens=2))
        await until(lambda: serving.gate.holding)
        assert (await probe(serving, "/health"))[0] == 200
        serving.clock.ahead = 60
        status, why = await probe(serving, "/health")
        assert status == 503
        assert "no step has ended" in why
        assert (await probe(serving, "/ready"))[0] == 503
        serving.gate.open()
        await request
        await until(lambda: serving.service.trouble() is None)
        await serving.client.aclose()


async def test_idle_engine_is_not_stuck() -> None:
    with new_serving(Limits(stall_seconds=5)) as serving:
        serving.start()
        serving.clock.ahead = 3600
        assert (await probe(serving, "/health"))[0] == 200
        await serving.client.aclose()


@pytest.mark.parametrize("stream", [False, True])
async def test_dead_engine_is_found_out_and_its_requests_end(
    gated: Serving, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    request = asyncio.create_task(gated.chat(max_tokens=50, stream=stream))
    await until(lambda: gated.gate.holding)

    def lose(seconds: float) -> None:
        raise RunnerLost("device 0xdead at /dev/secret")

    runner = gated.service.check_ready().runner
    monkeypatch.setattr(runner, "_sleep", lose)
    gated.gate.let_through()
    answer = await request
    assert "secret" not in answer.text
    assert '"engine_error"' in answer.text
    assert await probe(gated, "/health") == (503, "the engine has failed")
    assert (await probe(gated, "/ready"))[0] == 503
    refused = await gated.chat()
    assert refused.status_code == 503
    assert "engine has failed" in refused.json()["error"]["message"]


async def test_failure_in_one_answer_leaves_the_others_alone(
    gated: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = asyncio.create_task(gated.chat(max_tokens=50, stream=True))
    await gated.step_until_busy(running=1)
    codec = gated.service.check_ready().codec

    class Broken:
        def feed(self, token_id: int) -> str:
            raise RuntimeError("canary")

    monkeypatch.setattr(codec, "detokeniser", Broken)
    second = asyncio.create_task(gated.chat(max_tokens=50))
    await gated.step_until(second.done)
    failed = await second
    assert failed.status_code == 500
    assert "canary" not in failed.text
    await gated.step_until_busy(running=1)
    gated.gate.open()
    assert (await first).text.endswith("data: [DONE]\n\n")
    assert gated.sample("headway_requests_total", workload="chat", outcome="error") == 1
