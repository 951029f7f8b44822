# SPDX-License-Identifier: Apache-2.0
"""The load generator against scripted answers: what counts as a token, and that it always ends."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from headway_bench.__main__ import main
from headway_bench.client import ChatRequest, measure
from headway_bench.load import LoadSettings, run_closed_loop

ROLE = {"choices": [{"delta": {"role": "assistant", "content": ""}}]}
WORD = {"choices": [{"delta": {"content": "hi"}}]}
END = {"choices": [{"delta": {}, "finish_reason": "length"}]}
USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}


def settings(**changes: Any) -> LoadSettings:
    values: dict[str, Any] = {
        "url": "http://server", "clients": 3, "seconds": 30.0, "requests": 9, "prompt_words": 8,
        "output_tokens": 2, "model": None, "workload": "chat", "seed": 1,
        "request_timeout_seconds": 5.0,
    }  # fmt: skip
    return LoadSettings(**(values | changes))


async def stream(*chunks: dict[str, Any]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield f"data: {json.dumps(chunk)}\n\n".encode()
    yield b"data: [DONE]\n\n"


def answering(*chunks: dict[str, Any], status: int = 200) -> httpx.MockTransport:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "tiny"}]})
        return httpx.Response(status, content=stream(*chunks))

    return httpx.MockTransport(answer)


async def measured(*chunks: dict[str, Any], status: int = 200) -> Any:
    transport = answering(*chunks, status=status)
    async with httpx.AsyncClient(base_url="http://server", transport=transport) as http:
        return await measure(http, ChatRequest("tiny", "hello", 2), intended=0.0)


async def test_role_and_usage_chunks_are_not_tokens() -> None:
    timing = await measured(ROLE, WORD, WORD, END, USAGE)
    assert len(timing.token_times) == 2
    assert (timing.prompt_tokens, timing.output_tokens, timing.error) == (7, 2, None)


async def test_a_refusal_and_a_broken_stream_are_errors() -> None:
    assert (await measured(status=429)).error == "HTTP 429"
    assert (await measured(ROLE, WORD)).error == "StreamEndedEarly"
    assert (await measured(ROLE, {"error": {"type": "server_error"}})).error == "server_error"


async def test_the_loop_stops_at_the_number_of_requests_and_names_the_workload() -> None:
    seen: list[httpx.Request] = []
    inner = answering(ROLE, WORD, WORD, END, USAGE)

    async def record(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return await inner.handle_async_request(request)

    result = await run_closed_loop(settings(), transport=httpx.MockTransport(record))
    assert result.model == "tiny"
    assert len(result.timings) == 9
    chats = [request for request in seen if request.url.path == "/v1/chat/completions"]
    assert {request.headers["x-workload"] for request in chats} == {"chat"}


async def test_equal_seeds_send_equal_prompts_and_no_two_share_their_first_words() -> None:
    async def prompts(seed: int) -> list[str]:
        sent: list[str] = []
        inner = answering(ROLE, WORD, END, USAGE)

        async def record(request: httpx.Request) -> httpx.Response:
            if request.method == "POST":
                sent.append(json.loads(request.content)["messages"][0]["content"])
            return await inner.handle_async_request(request)

        await run_closed_loop(settings(seed=seed), transport=httpx.MockTransport(record))
        return sorted(sent)

    first = await prompts(1)
    assert first == await prompts(1)
    assert first != await prompts(2)
    assert len({prompt.split(":")[0] for prompt in first}) == len(first)


def test_an_endpoint_that_is_not_there_gets_a_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "--url", "http://127.0.0.1:9", "--duration", "1"]) == 1
    assert "http://127.0.0.1:9 did not answer" in capsys.readouterr().err


def test_bad_flags_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refusal:
        main(["run", "--url", "http://x", "--clients", "0"])
    assert refusal.value.code == 2
    assert "--clients" in capsys.readouterr().err
