# SPDX-License-Identifier: Apache-2.0
"""The command as a process: real sockets, signals, exit codes, and the official client."""

import asyncio
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest
from tests.server.http.server_process import MODEL, Serving, running, serving
from tests.waiting import wait_until

from headway_server import process
from headway_server.loading import envelope_of
from headway_server.options import ServeOptions, StartError
from headway_server.process import serve
from headway_server.runner.simulated import StepTime
from headway_server.settings import Envelope


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Started with a runtime file that it has to refuse."""
    file = tmp_path_factory.mktemp("runtime") / "runtime.json"
    file.write_text("{}")
    with serving("--runtime-file", str(file)) as up:
        yield up


@pytest.fixture
def client(up: Serving) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{up.url}/v1", api_key="unused", max_retries=0) as client:
        yield client


def test_openai_client_gets_whole_answers(client: openai.OpenAI) -> None:
    chat = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "hi"}], max_tokens=9, temperature=0
    )
    assert chat.choices[0].finish_reason == "length"
    assert len(chat.choices[0].message.content or "") == 9
    assert chat.usage
    assert chat.usage.completion_tokens == 9
    text = client.completions.create(model=MODEL, prompt="abc", max_tokens=9)
    assert len(text.choices[0].text) == 9
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL


def test_openai_client_streams(client: openai.OpenAI) -> None:
    whole = client.completions.create(model=MODEL, prompt="abc", max_tokens=30).choices[0].text
    stream = client.completions.create(model=MODEL, prompt="abc", max_tokens=30, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == whole
    chunks = list(
        client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "hi"}],
            max_tokens=30,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].usage
    assert chunks[-1].usage.completion_tokens == 30


async def test_async_openai_client_streams_many_at_once(up: Serving) -> None:
    async with openai.AsyncOpenAI(base_url=f"{up.url}/v1", api_key="unused") as client:

        async def stream(tokens: int) -> int:
            chunks = await client.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": "hi"}],
                max_tokens=tokens,
                stream=True,
            )
            return sum([len(each.choices[0].delta.content or "") async for each in chunks])

        lengths = list(range(5, 25))
        assert await asyncio.gather(*map(stream, lengths)) == lengths


def test_openai_client_understands_the_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.completions.create(model="other", prompt="x")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as too_long:
        client.completions.create(model=MODEL, prompt="x" * 9000)
    assert too_long.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError, match="no embeddings"):
        client.embeddings.create(model=MODEL, input="x")


def test_client_that_closes_its_connection_frees_the_place(
    up: Serving, client: openai.OpenAI
) -> None:
    stream = client.completions.create(model=MODEL, prompt="abc", max_tokens=8000, stream=True)
    next(iter(stream))
    assert up.gauge("headway_running_requests") == 1
    stream.close()
    wait_until(lambda: not up.gauge("headway_running_requests"), "an empty batch")
    assert up.gauge('headway_kv_tokens{model="filler",state="used"}') == 0


def test_bad_runtime_file_at_start_is_reported_and_the_defaults_serve(up: Serving) -> None:
    assert up.gauge("headway_runtime_config_rejected") == 1
    budget = 'headway_knob_value{knob="maxBatchTotalTokens",model="filler",workload="default"}'
    assert up.gauge(budget) > 0


def test_tgis_names_are_there_only_on_demand(up: Serving) -> None:
    scraped = httpx.get(up.metrics).text
    assert "vllm:num_requests_running" in scraped
    assert "tgi_" not in scraped


def test_sigterm_finishes_the_open_stream_and_exits_with_0() -> None:
    body = {"model": MODEL, "prompt": "abc", "max_tokens": 200, "stream": True}
    with serving() as up, httpx.Client(timeout=60) as client:
        with client.stream("POST", f"{up.url}/v1/completions", json=body) as response:
            blocks = response.iter_text()
            text = next(blocks)
            up.server.process.send_signal(signal.SIGTERM)
            up.server.wait_for("draining")
            assert httpx.get(f"{up.url}/ready").status_code == 503
            assert httpx.get(f"{up.url}/health").status_code == 200
            assert httpx.post(f"{up.url}/v1/completions", json=body).status_code == 503
            text += "".join(blocks)
        assert text.endswith("data: [DONE]\n\n")
        pieces = re.findall(r'"text":"([a-z ]*)"', text)
        assert len("".join(pieces)) == 200
        assert up.server.end() == 0


def test_command_that_cannot_start_ends_with_a_sentence_and_1() -> None:
    with running("--model", "/nowhere/model") as server:
        assert server.end() == 1
        assert server.lines[-1].startswith("headway-server: ")
        assert "/nowhere/model" in server.lines[-1]


OPTIONS = ServeOptions(
    model="x",
    served_name="x",
    revision="main",
    device="auto",
    dtype="auto",
    quantization="none",
    kv_cache_dtype="auto",
    prefix_caching=True,
    simulated=StepTime(),
    max_input_tokens=None,
    max_total_tokens=None,
    kv_cache_capacity_tokens=None,
    gpu_memory_utilization_percent=90,
    runtime_file=None,
    host="127.0.0.1",
    port=0,
    metrics_port=0,
    drain_timeout_seconds=1,
    stall_timeout_seconds=60,
    tgi_metrics=False,
)


def test_prefixes_are_not_kept_where_that_is_switched_off() -> None:
    found = "headway_prefix_cache_queried_tokens_total"
    with serving("--prefix-caching", "disabled") as up:
        body = {"model": MODEL, "prompt": "abc" * 20, "max_tokens": 1}
        for _ in range(2):
            assert httpx.post(f"{up.url}/v1/completions", json=body).status_code == 200
        assert up.gauge(found) == 0


def last_line_of_failed_start(options: ServeOptions, capsys: pytest.CaptureFixture[str]) -> str:
    assert serve(options) == 1
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"kv_cache_capacity_tokens": 100, "max_total_tokens": 200},
            "the KV cache holds 96 tokens, fewer than --max-total-tokens 200",
        ),
        (
            {"max_input_tokens": 200, "max_total_tokens": 200},
            "--max-input-tokens 200 must be below --max-total-tokens 200",
        ),
    ],
)
def test_envelope_that_does_not_fit_is_named(
    changes: dict[str, Any], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sentence in last_line_of_failed_start(replace(OPTIONS, **changes), capsys)


@pytest.mark.parametrize("flag", ["port", "metrics_port"])
def test_port_that_is_taken_is_named(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = last_line_of_failed_start(replace(OPTIONS, **{flag: port}), capsys)
    assert f"port {port}" in line


def test_sigterm_ends_a_process_that_is_still_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    loading, seen = threading.Event(), list[int]()

    def load_for_ever(*_: object) -> None:
        loading.set()
        threading.Event().wait()

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def probe_and_stop() -> None:
        loading.wait()
        for path in ("health", "ready"):
            seen.append(httpx.get(f"http://127.0.0.1:{port}/{path}").status_code)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(process, "load", load_for_ever)
    stopper = threading.Thread(target=probe_and_stop)
    stopper.start()
    assert serve(replace(OPTIONS, port=port)) == 0
    stopper.join()
    assert seen == [200, 503]


def test_model_with_a_shorter_context_is_named() -> None:
    with pytest.raises(StartError, match="4096 is above the context of model x, 2048 tokens"):
        envelope_of(replace(OPTIONS, max_total_tokens=4096), 2048, 100_000, 512)


def test_envelope_defaults_to_what_model_and_memory_allow() -> None:
    assert envelope_of(OPTIONS, 2048, 100_000, 512) == Envelope(100_000, 2047, 2048, 512)
    assert envelope_of(OPTIONS, 2048, 1000, 512) == Envelope(1000, 999, 1000, 512)
