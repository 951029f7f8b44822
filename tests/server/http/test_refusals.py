# SPDX-License-Identifier: Apache-2.0
"""Every refusal has its status, OpenAI's form, and says which limit, the value and the bound."""

import asyncio
from typing import Any

import httpx
import pytest
from tests.server.http.serving import (
    CHAT,
    COMPLETIONS,
    MODEL,
    Serving,
    chat_body,
    new_serving,
    runtime_file,
    until,
)

from headway_api.batching import WorkloadLimits
from headway_server.service import Limits


def error_of(response: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


BAD_FIELDS: list[tuple[str, Any]] = [
    ("temperature", -0.1),
    ("temperature", 2.1),
    ("temperature", True),
    ("temperature", "1"),
    ("top_p", 0),
    ("top_p", 1.01),
    ("top_k", -2),
    ("top_k", 1.5),
    ("max_tokens", 0),
    ("max_tokens", -1),
    ("max_tokens", 2**63),
    ("max_tokens", True),
    ("max_completion_tokens", 0),
    ("seed", 2**63),
    ("seed", 0.5),
    ("n", 0),
    ("n", 2),
    ("n", 10**9),
    ("stop", ""),
    ("stop", [""]),
    ("stop", ["a"] * 5),
    ("stop", [1]),
    ("stop", "x" * 513),
    ("stream", "yes"),
    ("stream_options", []),
    ("user", 5),
    ("user", "x" * 300),
    ("model", 7),
    ("messages", []),
    ("messages", "hi"),
    ("ignore_eos", 1),
]


@pytest.mark.parametrize(("field", "value"), BAD_FIELDS)
async def test_bad_value_is_named(ready: Serving, field: str, value: Any) -> None:
    response = await ready.chat(**{field: value})
    assert response.status_code == 400
    error = error_of(response)
    assert error["param"] == field or error["param"].startswith(field + "[")
    assert error["message"].startswith(field)
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "1e999"])
@pytest.mark.parametrize("field", ["temperature", "top_p", "max_tokens", "seed"])
async def test_numbers_must_be_finite(ready: Serving, field: str, number: str) -> None:
    body = '{"model": "%s", "prompt": "x", "%s": %s}' % (MODEL, field, number)  # noqa: UP031
    headers = {"content-type": "application/json"}
    response = await ready.client.post(COMPLETIONS, content=body, headers=headers)
    assert response.status_code == 400
    error_of(response)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"[" * 100_000,
        b'{"model":"filler","prompt":"\\ud800"}',
        b"\xff\xfe",
    ],
)
async def test_body_must_be_a_json_object(ready: Serving, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    response = await ready.client.post(COMPLETIONS, content=body, headers=headers)
    assert response.status_code == 400
    error_of(response)


@pytest.mark.parametrize(
    "prompt", ["", [], [[]], ["a", "b"], [-1], [257], [2**63], [1.5], [True], ["a", 1], {}, 5]
)
async def test_bad_prompt_is_refused(ready: Serving, prompt: Any) -> None:
    response = await ready.complete(prompt)
    assert response.status_code == 400
    assert error_of(response)["message"].startswith("prompt")


@pytest.mark.parametrize(
    "content", [5, [{"type": "image_url", "image_url": {"url": "http://x"}}], ["a"], [{}], {}]
)
async def test_only_text_is_taken(ready: Serving, content: Any) -> None:
    response = await ready.chat(content)
    assert response.status_code == 400
    assert error_of(response)["param"] == "messages[0].content"


async def test_more_than_one_choice_is_refused_in_a_sentence(ready: Serving) -> None:
    error = error_of(await ready.chat(n=3))
    assert error["message"] == "n must be 1, because this server gives one choice per request."


async def test_other_model_is_not_found(ready: Serving) -> None:
    response = await ready.chat(model="gpt-x")
    assert response.status_code == 404
    error = error_of(response)
    assert error["code"] == "model_not_found"
    assert "'gpt-x'" in error["message"]
    assert "'filler'" in error["message"]


async def test_unknown_workload_is_told_the_known_ones(ready: Serving) -> None:
    response = await ready.chat(headers={"x-workload": "nightly"})
    assert response.status_code == 400
    message = error_of(response)["message"]
    assert "'nightly'" in message
    assert "chat, batch" in message


async def test_prompt_above_the_limit_is_refused_with_both_counts(gated: Serving) -> None:
    response = await gated.complete([1] * 201)
    assert response.status_code == 400
    error = error_of(response)
    assert error["code"] == "context_length_exceeded"
    assert "201" in error["message"]
    assert "200" in error["message"]
    assert gated.sample("headway_kv_tokens", state="used") == 0


async def test_prompt_and_answer_above_the_limit_are_refused(ready: Serving) -> None:
    assert (await ready.complete([1] * 100, max_tokens=156)).status_code == 200
    response = await ready.complete([1] * 100, max_tokens=157)
    assert response.status_code == 400
    error = error_of(response)
    assert error["code"] == "context_length_exceeded"
    assert "257" in error["message"]
    assert "256" in error["message"]


async def test_workload_limits_bound_input_and_output(loading: Serving) -> None:
    limits = WorkloadLimits(max_input_tokens=50, max_output_tokens=5)
    loading.start(runtime_file(limits=limits))
    loading.gate.open()
    capped = await loading.complete("hi", max_tokens=40)
    assert capped.json()["usage"]["completion_tokens"] == 5
    refused = await loading.complete([1] * 51)
    assert refused.status_code == 400
    assert "50" in error_of(refused)["message"]


async def test_full_replica_answers_429_until_there_is_room(loading: Serving) -> None:
    loading.start(runtime_file(max_concurrent_requests=2))
    open_requests = [asyncio.create_task(loading.chat(max_tokens=50)) for _ in range(2)]
    await loading.step_until_busy(running=2)
    refused = await loading.chat(max_tokens=2)
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    error = error_of(refused)
    assert error["type"] == "rate_limit_error"
    assert "engine.maxConcurrentRequests, is 2" in error["message"]
    loading.gate.open()
    assert [(await each).status_code for each in open_requests] == [200, 200]
    assert (await loading.chat(max_tokens=2)).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_full_queue_answers_429(loading: Serving, stream: bool) -> None:
    limits = WorkloadLimits(max_concurrent_requests=1, max_queue_length=1)
    loading.start(runtime_file(limits=limits))
    first = asyncio.create_task(loading.chat(max_tokens=50))
    await loading.step_until_busy(running=1)
    second = asyncio.create_task(loading.chat(max_tokens=50))
    await loading.step_until_busy(running=1, waiting=1)
    third = asyncio.create_task(loading.chat(max_tokens=50, stream=stream))
    await loading.step_until(third.done)
    refused = await third
    loading.gate.open()
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    message = error_of(refused)["message"]
    assert "chat" in message
    assert "1" in message
    assert [(await each).status_code for each in (first, second)] == [200, 200]


async def test_loading_answers_503(loading: Serving) -> None:
    response = await loading.chat()
    assert response.status_code == 503
    assert "loading" in error_of(response)["message"]
    assert response.headers["retry-after"]


async def test_draining_answers_503_and_finishes_what_runs(gated: Serving) -> None:
    running = asyncio.create_task(gated.chat(max_tokens=50, stream=True))
    await gated.step_until_busy(running=1)
    drain = asyncio.create_task(gated.service.drain(30))
    await until(lambda: gated.service.phase == "draining")
    assert (await gated.chat()).status_code == 503
    gated.gate.open()
    await drain
    assert (await running).text.endswith("data: [DONE]\n\n")


async def test_body_above_the_cap_is_refused_while_it_is_read() -> None:
    with new_serving(Limits(body_bytes=1000)) as serving:
        serving.start()

        async def endless() -> Any:
            yield b'{"model": "'
            while True:
                yield b"x" * 100

        headers = {"content-type": "application/json"}
        streamed = await serving.client.post(CHAT, content=endless(), headers=headers)
        declared = await serving.chat("x" * 1000)
        assert [streamed.status_code, declared.status_code] == [413, 413]
        assert "1000" in error_of(streamed)["message"]
        await serving.client.aclose()


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "multipart/form-data; boundary=x"},
        {"content-type": "text/plain"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
async def test_other_kinds_of_body_are_415(ready: Serving, headers: dict[str, str]) -> None:
    response = await ready.client.post(CHAT, content=b"{}", headers=headers)
    assert response.status_code == 415
    error_of(response)


async def test_embeddings_are_refused_in_words(ready: Serving) -> None:
    response = await ready.client.post("/v1/embeddings", json={"input": "x"})
    assert response.status_code == 404
    assert "embeddings" in error_of(response)["message"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/nothing", 404), ("GET", CHAT, 405), ("POST", "/health", 405), ("GET", "/", 404)],
)
async def test_unknown_routes_have_the_error_form(
    ready: Serving, method: str, path: str, status: int
) -> None:
    response = await ready.client.request(method, path)
    assert response.status_code == status
    error_of(response)


@pytest.mark.parametrize("tenant", ["a b", "x" * 129, "täst".encode().decode("latin-1")])
async def test_tenant_must_be_printable(ready: Serving, tenant: str) -> None:
    response = await ready.client.post(
        CHAT, json=chat_body(), headers=[(b"x-tenant-id", tenant.encode("latin-1"))]
    )
    assert response.status_code == 400
    assert error_of(response)["param"] == "x-tenant-id"


async def test_error_inside_says_nothing_of_itself(
    ready: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("/secret/path 0xdeadbeef")

    monkeypatch.setattr(ready.service, "begin", fail)
    response = await ready.chat(headers={"x-request-id": "abc"})
    assert response.status_code == 500
    assert "secret" not in response.text
    assert "abc" in error_of(response)["message"]
