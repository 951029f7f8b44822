# SPDX-License-Identifier: Apache-2.0
"""The outermost layer: a request id on every answer, one log line a request, no error past it.

Never logs what a client sent: no prompt, no header, no query.
"""

import logging
import re
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
NOTE = "headway.note"

log = logging.getLogger("headway_server.access")


@dataclass(slots=True)
class RequestNote:
    """What the log line will say besides method, path, status and time."""

    request_id: str
    fields: dict[str, Any] = field(default_factory=dict)


def note_of(scope: Scope) -> RequestNote:
    note: RequestNote = scope[NOTE]
    return note


class RequestNotes:
    """ASGI middleware. A client's X-Request-Id is echoed if it is printable, else replaced."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        note = scope[NOTE] = RequestNote(_request_id(Headers(scope=scope).get("x-request-id")))
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = note.request_id
            await send(message)

        started = time.monotonic()
        try:
            await self._app(scope, receive, send_with_id)
        except Exception:
            log.exception("request failed", extra={"request_id": note.request_id})
        finally:
            if scope["path"].startswith("/v1/"):
                _log(note, scope, status, time.monotonic() - started)


def _request_id(given: str | None) -> str:
    if given is not None and REQUEST_ID.fullmatch(given):
        return given
    return uuid.uuid4().hex


def _log(note: RequestNote, scope: Scope, status: int, seconds: float) -> None:
    log.info(
        "request",
        extra={
            "request_id": note.request_id,
            "method": scope["method"],
            "route": getattr(scope.get("route"), "path", None),
            "status": status,
            "seconds": round(seconds, 4),
            **note.fields,
        },
    )
