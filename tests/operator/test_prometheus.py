# SPDX-License-Identifier: Apache-2.0
"""The metrics client against a provider that answers, refuses, stammers or is not there."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from headway_operator.prometheus import MetricsUnavailable, Prometheus, Sample, parse_provider
from tests.operator.prometheus_stub import PrometheusStub, prometheus_stub


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient() as client:
        yield client


@pytest.fixture
def prometheus() -> Iterator[PrometheusStub]:
    with prometheus_stub() as stub:
        yield stub


@pytest.fixture
async def provider(prometheus: PrometheusStub, client: httpx.AsyncClient) -> Prometheus:
    return Prometheus(f"{prometheus.url}/", client)


def answer(result: Any, kind: str = "vector") -> tuple[int, bytes]:
    body = {"status": "success", "data": {"resultType": kind, "result": result}}
    return 200, json.dumps(body).encode()


async def ask(provider: Prometheus, stub: PrometheusStub, raw: tuple[int, bytes]) -> list[Sample]:
    stub.raw = raw
    return await provider.query("up")


async def test_samples_have_labels_value_and_time(
    provider: Prometheus, prometheus: PrometheusStub
) -> None:
    series = [{"metric": {"pod": "a"}, "value": [1700000000.25, "12.5"]}]
    found = await ask(provider, prometheus, answer(series))
    assert found == [Sample({"pod": "a"}, 12.5, 1700000000.25)]
    assert prometheus.queries[-1] == "up"
    assert await ask(provider, prometheus, answer([])) == []


async def test_a_value_that_is_no_number_is_no_sample(
    provider: Prometheus, prometheus: PrometheusStub
) -> None:
    series = [
        {"metric": {"pod": str(n)}, "value": [1, text]} for n, text in enumerate(["NaN", "+Inf"])
    ]
    (only,) = await ask(provider, prometheus, answer(series))
    assert only.value == float("inf")


BAD: list[tuple[tuple[int, bytes], str]] = [
    ((503, b"overloaded"), "answered 503 without JSON"),
    ((200, b"<html>"), "answered 200 without JSON"),
    (
        (400, b'{"status":"error","errorType":"bad_data","error":"parse error"}'),
        r"refused the query \(400\): bad_data: parse error",
    ),
    ((200, b"[]"), "unknown form"),
    ((200, b'{"status":"success"}'), "unknown form"),
    (answer([{"metric": {}, "value": ["x"]}]), "unknown form"),
    (answer([{"metric": {}, "value": [1, "x"]}]), "unknown form"),
    (answer([[1, "1"]], kind="scalar"), "gives no vector"),
]


@pytest.mark.parametrize(("raw", "words"), BAD)
async def test_a_bad_answer_is_told_in_a_sentence(
    provider: Prometheus, prometheus: PrometheusStub, raw: tuple[int, bytes], words: str
) -> None:
    with pytest.raises(MetricsUnavailable, match=words) as failed:
        await ask(provider, prometheus, raw)
    assert str(failed.value).startswith(f"Prometheus at {prometheus.url}")


async def test_a_provider_that_is_not_there(client: httpx.AsyncClient) -> None:
    with pytest.raises(MetricsUnavailable, match=r"^Prometheus at http://127\.0\.0\.1:1: "):
        await Prometheus("http://127.0.0.1:1", client).query("up")


async def test_a_provider_that_is_silent() -> None:
    def silent(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("", request=request)

    async with httpx.AsyncClient(transport=httpx.MockTransport(silent)) as client:
        with pytest.raises(MetricsUnavailable, match="ReadTimeout"):
            await Prometheus("http://p", client).query("up")


async def test_a_query_can_be_put_to_a_moment() -> None:
    forms: list[str] = []

    def note(request: httpx.Request) -> httpx.Response:
        forms.append(request.content.decode())
        return httpx.Response(200, content=answer([])[1])

    async with httpx.AsyncClient(transport=httpx.MockTransport(note)) as client:
        await Prometheus("http://p", client).query('up{a="b"}', at=12.3456)
    assert forms == ["query=up%7Ba%3D%22b%22%7D&time=12.346"]


@pytest.mark.parametrize(
    "text", ["default", "=http://p", "default=", "default=p:9090", "a=ftp://p"]
)
def test_a_provider_flag_that_is_not_name_and_url(text: str) -> None:
    with pytest.raises(ValueError, match="is not NAME=URL"):
        parse_provider(text)


def test_a_provider_flag() -> None:
    assert parse_provider("default=https://p/x?a=b") == ("default", "https://p/x?a=b")
