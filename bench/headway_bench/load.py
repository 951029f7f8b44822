# SPDX-License-Identifier: Apache-2.0
"""Closed-loop load: a fixed number of clients, each sending its next request when the last ends.

The loop is bounded in time and, when asked, in requests; it always stops by itself.
"""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from headway_bench.client import ChatRequest, discover_model, measure
from headway_bench.timing import RequestTiming

_TOPICS = ("trains", "rivers", "bread", "bridges", "winter", "maps", "gardens", "clocks", "ships")
_CONNECT_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class LoadSettings:
    url: str
    clients: int
    seconds: float
    requests: int | None
    prompt_words: int
    output_tokens: int
    model: str | None
    workload: str | None
    seed: int
    request_timeout_seconds: float


@dataclass(frozen=True, slots=True)
class LoadResult:
    model: str
    timings: tuple[RequestTiming, ...]
    seconds: float


def prompt_of(words: int, chance: random.Random) -> str:
    """A prompt of about `words` words; its first words differ, so no prefix cache can help."""
    body = " ".join(chance.choice(_TOPICS) for _ in range(max(0, words - 6)))
    return f"Number {chance.randrange(10**6)}: tell me about {body}"


async def run_closed_loop(
    settings: LoadSettings,
    on_finish: Callable[[RequestTiming], None] = lambda timing: None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> LoadResult:
    """Run the load; `on_finish` sees each request as it ends. Raises httpx.HTTPError when the
    endpoint cannot even list its models."""
    timeout = httpx.Timeout(settings.request_timeout_seconds, connect=_CONNECT_TIMEOUT_SECONDS)
    limits = httpx.Limits(max_connections=settings.clients)
    async with httpx.AsyncClient(
        base_url=settings.url, timeout=timeout, limits=limits, transport=transport
    ) as http:
        model = settings.model or await discover_model(http)
        begin = time.monotonic()
        timings: list[RequestTiming] = []
        remaining = iter(range(settings.requests)) if settings.requests is not None else None

        async def one_client(number: int) -> None:
            chance = random.Random(f"{settings.seed}/{number}")  # noqa: S311 - not a secret
            while time.monotonic() - begin < settings.seconds:
                if remaining is not None and next(remaining, None) is None:
                    return
                prompt = prompt_of(settings.prompt_words, chance)
                request = ChatRequest(model, prompt, settings.output_tokens, settings.workload)
                timing = await measure(http, request, intended=time.monotonic())
                timings.append(timing)
                on_finish(timing)
                if timing.error is not None:
                    await asyncio.sleep(chance.uniform(0.2, 0.6))

        await asyncio.gather(*(one_client(number) for number in range(settings.clients)))
        return LoadResult(model, tuple(timings), time.monotonic() - begin)
