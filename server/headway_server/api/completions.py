# SPDX-License-Identifier: Apache-2.0
"""POST /v1/chat/completions and /v1/completions: from the body to a queued request.

In this order, cheapest first: ready, workload and room, body, model name, token count, queue.
"""

import re
import time
from typing import Any

from fastapi import APIRouter, Request, Response

from headway_server.admission import workload_of
from headway_server.api.answer import Answer
from headway_server.api.body import read_json
from headway_server.api.openai_requests import (
    ChatRequest,
    CompletionRequest,
    GenerationRequest,
    parse,
)
from headway_server.api.shapes import CHAT, COMPLETION, Form, Shape
from headway_server.problem import Problem
from headway_server.service import Asked, LoadedModel, Service

TENANT = re.compile(r"[\x21-\x7e]{1,128}")
ANONYMOUS = "anonymous"

router = APIRouter()


@router.post("/v1/chat/completions")
async def chat_completions(request: Request) -> Response:
    return await _answer(request, ChatRequest, CHAT)


@router.post("/v1/completions")
async def completions(request: Request) -> Response:
    return await _answer(request, CompletionRequest, COMPLETION)


async def _answer(request: Request, kind: type[GenerationRequest], form: Form) -> Response:
    service: Service = request.app.state.service
    arrival = service.clock()
    workload = None
    try:
        model = service.check_ready()
        workload = workload_of(request.headers.get("x-workload"), service.settings)
        service.check_room()
        tenant = _tenant(request.headers.get("x-tenant-id"))
        asked = parse(kind, await read_json(request, service.limits.body_bytes))
        _check_model(asked.model, service.served_name)
        generation = service.begin(
            model,
            Asked(
                workload=workload,
                tenant=tenant,
                arrival=arrival,
                prompt=await _prompt(service, model, asked),
                max_tokens=asked.output_tokens,
                default_tokens=asked.default_output_tokens,
                sampling=asked.sampling,
                stops=asked.stop,
                ignore_end=bool(asked.ignore_eos),
            ),
        )
    except Problem as problem:
        service.turn_away(workload, problem)
        raise
    shape = Shape(
        form, generation.request_id, service.served_name, int(time.time()), asked.wants_usage
    )
    return Answer(service, generation, shape, bool(asked.stream))


async def _prompt(service: Service, model: LoadedModel, asked: Any) -> tuple[int, ...]:
    if isinstance(asked, ChatRequest):
        messages = [message.as_message() for message in asked.messages]
        return await service.in_worker(model.codec.encode_chat, messages)
    if isinstance(asked.prompt, str):
        return await service.in_worker(model.codec.encode_text, asked.prompt)
    return _checked_ids(asked.prompt, model.codec.vocab_size)


def _checked_ids(token_ids: tuple[int, ...], vocab_size: int) -> tuple[int, ...]:
    if min(token_ids) < 0 or max(token_ids) >= vocab_size:
        raise Problem(400, f"prompt: token ids must be from 0 to {vocab_size - 1}.", param="prompt")
    return token_ids


def _check_model(asked: str, served: str) -> None:
    if asked != served:
        raise Problem(
            404,
            f"There is no model {asked!r} here; this server serves {served!r}.",
            code="model_not_found",
            param="model",
        )


def _tenant(header: str | None) -> str:
    if header is None:
        return ANONYMOUS
    if not TENANT.fullmatch(header):
        raise Problem(
            400, "x-tenant-id must have 1 to 128 printable characters.", param="x-tenant-id"
        )
    return header
