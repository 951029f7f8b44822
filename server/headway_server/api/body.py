# SPDX-License-Identifier: Apache-2.0
"""A request's JSON, read under a cap and parsed strictly: no NaN, no infinity, bounded depth."""

from typing import Any

import orjson
from fastapi import Request
from starlette.requests import ClientDisconnect

from headway_server.generation import client_left
from headway_server.problem import Problem


async def read_json(request: Request, limit: int) -> Any:
    """Raises Problem; never holds more than `limit` bytes."""
    _check_headers(request, limit)
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > limit:
                raise _too_large(limit)
    except ClientDisconnect as error:
        raise client_left() from error
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Problem(400, f"The body is not valid JSON: {error}.", code="invalid_json") from error


def _check_headers(request: Request, limit: int) -> None:
    media_type = request.headers.get("content-type", "application/json").split(";")[0].strip()
    if media_type.lower() != "application/json":
        raise Problem(415, "Send the body as content-type: application/json.")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem(415, "Send the body without content-encoding.")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise _too_large(limit)


def _too_large(limit: int) -> Problem:
    return Problem(413, f"The body is larger than the limit of {limit} bytes.", code="too_large")
