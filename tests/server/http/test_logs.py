# SPDX-License-Identifier: Apache-2.0
"""Logs are one JSON object a line, and hold nothing of what clients send."""

import logging
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from tests.server.http.serving import CHAT, Serving, chat_body

from headway_server.json_logs import JsonFormatter

CANARY = "canary\n\x1b[31m\r\nforged"


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def lines() -> Iterator[list[str]]:
    handler = Lines()
    server = logging.getLogger("headway_server")
    server.addHandler(handler)
    server.setLevel(logging.INFO)
    yield handler.lines
    server.removeHandler(handler)
    server.setLevel(logging.NOTSET)


async def test_nothing_a_client_sends_is_logged(ready: Serving, lines: list[str]) -> None:
    headers = {"x-workload": "canary", "x-tenant-id": "canary"}
    await ready.chat(CANARY, max_tokens=1, user=CANARY, stop=[CANARY], seed=1)
    await ready.chat(CANARY, model=CANARY)
    await ready.chat(headers=headers)
    await ready.client.get("/v1/models/canary?canary")
    requests = [orjson.loads(line) for line in lines if '"message":"request"' in line]
    assert [each["status"] for each in requests] == [200, 404, 400, 404]
    assert requests[0]["prompt_tokens"] > 0
    assert requests[0]["generated_tokens"] == 1
    assert requests[0]["outcome"] == "length"
    assert all("\n" not in line for line in lines)
    assert not any("canary" in line for line in lines)


async def test_exception_is_told_without_its_text(
    ready: Serving, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("canary")

    monkeypatch.setattr(ready.service, "begin", fail)
    await ready.chat(headers={"x-request-id": "the-id"})
    told = next(orjson.loads(line) for line in lines if "exception" in line)
    assert told["exception"] == "RuntimeError"
    assert told["request_id"] == "the-id"
    assert told["raised_at"][-1].endswith("fail")
    assert not any("canary" in line for line in lines)


@pytest.mark.parametrize("given", ["abc-123", "x" * 128])
async def test_printable_request_id_is_echoed(ready: Serving, given: str) -> None:
    response = await ready.chat(max_tokens=1, headers={"x-request-id": given})
    assert response.headers["x-request-id"] == given


@pytest.mark.parametrize("given", [b"", b"x" * 129, b"a b", b"a\r\nset-cookie: x", "ü".encode()])
async def test_other_request_id_is_replaced(ready: Serving, given: bytes) -> None:
    response = await ready.client.post(
        CHAT, json=chat_body(max_tokens=1), headers=[(b"x-request-id", given)]
    )
    assert response.headers["x-request-id"].isalnum()
    assert "set-cookie" not in response.headers


async def test_answers_have_ids_of_their_own(ready: Serving) -> None:
    headers = {"x-request-id": "same"}
    first = await ready.chat(max_tokens=1, headers=headers)
    second = await ready.chat(max_tokens=1, headers=headers)
    assert first.json()["id"] != second.json()["id"]
