# SPDX-License-Identifier: Apache-2.0
"""A real service on a simulated runner whose steps a test lets through, one by one or freely."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp, Message

from headway_api.objectives import Objective
from headway_api.runtime import (
    RuntimeBatching,
    RuntimeFile,
    RuntimeScheduling,
    RuntimeValues,
    RuntimeWorkload,
)
from headway_server.api.app import create_app
from headway_server.engine.state import EngineState
from headway_server.exposition import new_registry
from headway_server.filler_codec import FILLER_VOCABULARY, filler_codec, not_filler
from headway_server.metrics import RequestMetrics
from headway_server.runner.simulated import SimulatedRunner
from headway_server.service import Limits, LoadedModel, Service
from headway_server.settings import Envelope, resolve

MODEL = "filler"
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
ENVELOPE = Envelope(
    kv_capacity_tokens=2048, max_input_tokens=200, max_total_tokens=256, prefill_tokens=512
)
TTFT = Objective(metric="TTFT", percentile=95, threshold_milliseconds=60_000)
TPOT = Objective(metric="TPOT", percentile=95, threshold_milliseconds=60_000)


class Gate:
    """Takes the place of the simulated runner's sleep: a step ends when it is let through."""

    def __init__(self) -> None:
        self.entered = 0
        self.passed = 0
        self._permits = threading.Semaphore(0)
        self._free = threading.Event()

    @property
    def holding(self) -> bool:
        return self.entered > self.passed

    def hold(self, seconds: float) -> None:
        self.entered += 1
        if not self._free.is_set():
            self._permits.acquire()
        self.passed += 1

    def let_through(self) -> None:
        self._permits.release()

    async def step(self) -> None:
        """Lets the step through that is held, and waits until it has ended."""
        passed = self.passed
        self.let_through()
        await until(lambda: self.passed > passed)

    def open(self) -> None:
        self._free.set()
        self._permits.release(1000)


def runtime_file(
    max_concurrent_requests: int = 128,
    scheduling: RuntimeScheduling | None = None,
    **workload: Any,
) -> RuntimeFile:
    """A file of one workload `chat`, and of `batch` beside it."""
    batching = {"waiting_served_ratio_percent": 0, "max_waiting_tokens": 20}
    batching |= workload.pop("batching", {})
    chat: dict[str, Any] = {
        "name": "chat",
        "class_name": "chat",
        "priority": 100,
        "weight": 1,
        "batching": RuntimeBatching(**batching),
        "objectives": [TTFT, TPOT],
    }
    batch = {**chat, "name": "batch", "class_name": "batch", "priority": -100, "objectives": []}
    return RuntimeFile.of(
        RuntimeValues(
            max_concurrent_requests=max_concurrent_requests,
            scheduling=scheduling,
            workloads=[RuntimeWorkload(**chat | workload), RuntimeWorkload(**batch)],
        )
    )


async def until(condition: Callable[[], bool]) -> None:
    """Waits for what another thread brings about."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110  it is told by no event
            await asyncio.sleep(0.002)


class Clock:
    """Real time, which a test may put forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


@dataclass
class Serving:
    service: Service
    clock: Clock
    gate: Gate
    registry: CollectorRegistry
    app: ASGIApp
    client: httpx.AsyncClient

    def start(self, file: RuntimeFile | None = None, model: LoadedModel | None = None) -> None:
        """With the simulated runner behind the gate, unless there is a `model`."""
        if model is None:
            runner = SimulatedRunner(
                ENVELOPE.kv_capacity_tokens, FILLER_VOCABULARY, not_filler(), sleep=self.gate.hold
            )
            model = LoadedModel(runner, filler_codec(), ENVELOPE)
        self.service.start(model, resolve(file or runtime_file(), model.envelope))

    async def chat(self, content: Any = "hi", **fields: Any) -> httpx.Response:
        headers = fields.pop("headers", {})
        return await self.client.post(CHAT, json=chat_body(content, **fields), headers=headers)

    async def complete(self, prompt: Any = "hi", **fields: Any) -> httpx.Response:
        body = {"model": MODEL, "prompt": prompt, **fields}
        return await self.client.post(COMPLETIONS, json=body)

    def sample(self, name: str, **labels: str) -> float | None:
        """Of our own series, which all have the model's name."""
        return self.registry.get_sample_value(name, {"model": MODEL, **labels})

    @property
    def state(self) -> EngineState:
        assert self.service.state is not None
        return self.service.state

    async def step_until(self, reached: Callable[[], bool]) -> None:
        """Lets single steps through; the one after those is held."""
        while not reached():
            await until(lambda: self.gate.holding or reached())
            if not reached():
                await self.gate.step()

    async def step_until_busy(self, running: int, waiting: int = 0) -> None:
        await self.step_until(
            lambda: (self.state.running, self.state.waiting) == (running, waiting)
        )


def chat_body(content: Any = "hi", **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": content}], **fields}


def events(response: httpx.Response) -> list[dict[str, Any]]:
    """The chunks of a stream; asserts its framing."""
    blocks = response.text.split("\n\n")
    assert blocks[-2:] == ["data: [DONE]", ""]
    return [orjson.loads(block.removeprefix("data: ")) for block in blocks[:-2]]


def texts(chunks: list[dict[str, Any]]) -> list[str]:
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    return [each.get("text") or each.get("delta", {}).get("content") or "" for each in choices]


@dataclass
class Connection:
    """One request at the ASGI border, where a test can be a client that leaves or stops reading."""

    app: ASGIApp
    body: dict[str, Any]
    path: str = CHAT
    sent: list[Message] = field(default_factory=list)
    reading: asyncio.Event = field(default_factory=asyncio.Event)
    _gone: asyncio.Event = field(default_factory=asyncio.Event)
    _given: bool = False

    def open(self) -> "asyncio.Task[None]":
        self.reading.set()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(b"host", b"server"), (b"content-type", b"application/json")],
        }
        application: Awaitable[None] = self.app(scope, self._receive, self._send)
        return asyncio.ensure_future(application)

    def leave(self) -> None:
        self._gone.set()

    @property
    def text(self) -> str:
        return b"".join(each.get("body", b"") for each in self.sent).decode()

    async def _receive(self) -> Message:
        if not self._given:
            self._given = True
            return {"type": "http.request", "body": orjson.dumps(self.body), "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await self.reading.wait()
        self.sent.append(message)


@contextmanager
def new_serving(limits: Limits | None = None) -> Iterator[Serving]:
    """A service that is still loading; `start` makes it ready. Its gate is closed."""
    clock = Clock()
    requests = RequestMetrics(MODEL)
    service = Service(MODEL, requests, clock, limits or Limits())
    registry = new_registry(service, requests, lambda: None, tgi=True)
    gate = Gate()
    app = create_app(service)
    transport = httpx.ASGITransport(app)
    client = httpx.AsyncClient(transport=transport, base_url="http://server", timeout=30)
    try:
        yield Serving(service, clock, gate, registry, app, client)
    finally:
        gate.open()
        service.stop(10)
