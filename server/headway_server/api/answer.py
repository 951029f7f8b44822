# SPDX-License-Identifier: Apache-2.0
"""Sending a generation to its client, whole or as server-sent events, for as long as it listens.

The status line waits for the engine's first word, so that a refusal there still has its status.
Whatever happens, the generation is closed: a client that has gone leaves its place at once.
"""

import asyncio
import logging
from collections.abc import AsyncIterator

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headway_server.api.errors import error_body, internal_error
from headway_server.api.request_note import RequestNote, note_of
from headway_server.api.shapes import Shape, sse_event
from headway_server.generation import Generation, client_left
from headway_server.problem import Problem
from headway_server.service import Service
from headway_server.token_logprobs import PlacedLogprob

PING = b": ping\n\n"
CLIENT_GONE = 499

log = logging.getLogger(__name__)


class Answer(Response):
    """`stream`: server-sent events; otherwise one JSON object."""

    def __init__(
        self, service: Service, generation: Generation, shape: Shape, stream: bool
    ) -> None:
        super().__init__(media_type="text/event-stream" if stream else "application/json")
        del self.headers["content-length"]
        if stream:
            self.headers["cache-control"] = "no-cache"
            self.headers["x-accel-buffering"] = "no"
        self._service = service
        self._generation = generation
        self._shape = shape
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watch = asyncio.create_task(self._watch_for_disconnect(receive))
        blocks = self._events(note_of(scope)) if self._stream else self._whole()
        try:
            await self._send(blocks, send)
        finally:
            watch.cancel()
            self._service.close(self._generation)
            self._note(note_of(scope))

    async def _watch_for_disconnect(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._generation.break_off(client_left())

    async def _send(self, blocks: AsyncIterator[bytes], send: Send) -> None:
        """Raises Problem as long as nothing was sent."""
        started = False
        try:
            async for block in blocks:
                if not started:
                    start = {"type": "http.response.start", "status": 200}
                    await send({**start, "headers": self.raw_headers})
                    started = True
                await send({"type": "http.response.body", "body": block, "more_body": True})
        except Problem as problem:
            if problem.status == CLIENT_GONE:
                return
            raise
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _whole(self) -> AsyncIterator[bytes]:
        texts, finish_reason = [], ""
        logprobs: list[PlacedLogprob] | None = [] if self._generation.gives_logprobs else None
        async for delta in self._generation.deltas(self._service.limits.ping_seconds):
            if delta is not None:
                texts.append(delta.text)
                finish_reason = delta.finish_reason or ""
                if logprobs is not None:
                    logprobs += delta.logprobs
        timeline = self._generation.timeline
        yield self._shape.whole("".join(texts), finish_reason, timeline, logprobs)

    async def _events(self, note: RequestNote) -> AsyncIterator[bytes]:
        opening = self._shape.opening()
        begun = False
        try:
            async for delta in self._generation.deltas(self._service.limits.ping_seconds):
                if delta is None:
                    begun = True
                    yield PING
                    continue
                block, opening = opening, b""
                if delta.text or delta.logprobs:
                    block += self._shape.text(delta.text, delta.logprobs)
                if delta.finish_reason:
                    block += self._shape.closing(delta.finish_reason, self._generation.timeline)
                begun = True
                yield block
        except Problem as problem:
            if not begun or problem.status == CLIENT_GONE:
                raise
            yield sse_event(error_body(problem))
        except Exception:
            if not begun:
                raise
            log.exception("stream broken off", extra={"request_id": note.request_id})
            yield sse_event(error_body(internal_error(note.request_id)))

    def _note(self, note: RequestNote) -> None:
        account = self._generation.account()
        note.fields.update(
            workload=account.workload,
            outcome=account.outcome,
            prompt_tokens=account.prompt_tokens,
            generated_tokens=account.generated_tokens,
        )
