# SPDX-License-Identifier: Apache-2.0
"""One streamed chat request against an OpenAI endpoint, timed at its client.

A role-only, empty or usage-only chunk is not a token: it never sets TTFT.
"""

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx

from headway_bench.timing import RequestTiming


@dataclass(frozen=True, slots=True)
class ChatRequest:
    model: str
    prompt: str
    output_tokens: int
    workload: str | None = None

    def body(self) -> dict[str, Any]:
        """`ignore_eos` makes every answer as long as asked, so that runs are comparable."""
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": self.prompt}],
            "max_tokens": self.output_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    def headers(self) -> dict[str, str]:
        return {"x-workload": self.workload} if self.workload else {}


async def discover_model(http: httpx.AsyncClient) -> str:
    """The first model that the endpoint lists."""
    answer = await http.get("/v1/models")
    answer.raise_for_status()
    return str(answer.json()["data"][0]["id"])


async def measure(http: httpx.AsyncClient, request: ChatRequest, intended: float) -> RequestTiming:
    """Send one request; every failure becomes a timing with `error`, never an exception."""
    sent = time.monotonic()
    token_times: list[float] = []
    usage: dict[str, int] = {}
    error: str | None = None
    try:
        async with http.stream(
            "POST", "/v1/chat/completions", json=request.body(), headers=request.headers()
        ) as answer:
            if answer.status_code != httpx.codes.OK:
                error = f"HTTP {answer.status_code}"
            else:
                async for chunk in _chunks(answer):
                    usage = chunk.get("usage") or usage
                    if "error" in chunk:
                        error = str(chunk["error"].get("type", "error"))
                    if any(choice["delta"].get("content") for choice in chunk.get("choices", ())):
                        token_times.append(time.monotonic())
    except httpx.HTTPError as fault:
        error = type(fault).__name__
    if error is None and not usage:
        error = "StreamEndedEarly"
    return RequestTiming(
        intended=intended,
        sent=sent,
        token_times=tuple(token_times),
        finished=time.monotonic(),
        prompt_tokens=usage.get("prompt_tokens", 0),
        output_tokens=usage.get("completion_tokens", 0),
        error=error,
    )


async def _chunks(answer: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in answer.aiter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))
