# SPDX-License-Identifier: Apache-2.0
"""Errors as OpenAI's clients expect them, on every route and for every cause.

What goes out is a `Problem`'s own text or a fixed one: never an exception's.
"""

from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from headway_server.api.request_note import note_of
from headway_server.problem import Problem

TYPE_OF_STATUS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
    503: "unavailable_error",
    504: "timeout_error",
}


def error_body(problem: Problem) -> dict[str, Any]:
    default = "server_error" if problem.status >= 500 else "invalid_request_error"
    return {
        "error": {
            "message": problem.message,
            "type": TYPE_OF_STATUS.get(problem.status, default),
            "param": problem.param,
            "code": problem.code,
        }
    }


def error_response(problem: Problem) -> Response:
    headers = {}
    if problem.retry_after is not None:
        headers["retry-after"] = str(problem.retry_after)
    if problem.status in (408, 413, 415):
        headers["connection"] = "close"
    return Response(
        orjson.dumps(error_body(problem)), problem.status, headers, media_type="application/json"
    )


def internal_error(request_id: str) -> Problem:
    return Problem(
        500, f"Internal error; the server's log has it under {request_id}.", code="internal_error"
    )


def add_error_handlers(app: FastAPI) -> None:
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(HTTPException, _on_routing_error)
    app.add_exception_handler(Exception, _on_crash)


async def _on_problem(request: Request, error: Exception) -> Response:
    if not isinstance(error, Problem):
        raise error
    return error_response(error)


async def _on_crash(request: Request, error: Exception) -> Response:
    return error_response(internal_error(note_of(request.scope).request_id))


async def _on_routing_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    reasons = {404: "There is no such route.", 405: f"This route does not take {request.method}."}
    reason = reasons.get(error.status_code, "The request is not valid HTTP for this server.")
    return error_response(Problem(error.status_code, reason))
