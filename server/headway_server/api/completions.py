# SPDX-License-Identifier: Apache-2.0
"""POST /v1/chat/completions and /v1/completions: from the body to a queued request.

In this order, cheapest first: ready, workload and room, body, model name, token count, queue.
"""

import re
import time
from itertools import takewhile
from typing import Any
from zlib import crc32

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
from headway_server.api.structured_outputs import grammar_of
from headway_server.engine.messages import TokenMatcher
from headway_server.problem import Problem
from headway_server.service import Asked, LoadedModel, Service

TENANT = re.compile(r"[\x21-\x7e]{1,128}")
ANONYMOUS = "anonymous"
INSTRUCTING_ROLES = frozenset({"system", "developer"})

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
        _check_token_ids(asked, model.codec.vocab_size)
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
                min_tokens=asked.min_tokens or 0,
                stop_token_ids=asked.stop_token_ids,
                matcher=await _matcher(service, model, asked),
                prompt_group=_prompt_group(asked),
                cache_salt=asked.cache_salt or "",
            ),
        )
    except Problem as problem:
        service.turn_away(workload, problem)
        raise
    shape = Shape(
        form,
        generation.request_id,
        service.served_name,
        int(time.time()),
        model.codec.spell,
        asked.wants_usage,
    )
    return Answer(service, generation, shape, bool(asked.stream))


async def _prompt(service: Service, model: LoadedModel, asked: Any) -> tuple[int, ...]:
    if isinstance(asked, ChatRequest):
        messages = [message.as_message() for message in asked.messages]
        return await service.in_worker(model.codec.encode_chat, messages)
    if isinstance(asked.prompt, str):
        return await service.in_worker(model.codec.encode_text, asked.prompt)
    return _checked_ids(asked.prompt, model.codec.vocab_size)


async def _matcher(
    service: Service, model: LoadedModel, asked: GenerationRequest
) -> TokenMatcher | None:
    wanted = grammar_of(asked.response_format, asked.structured_outputs)
    if wanted is None:
        return None
    if asked.ignore_eos:
        message = "ignore_eos cannot be combined with a grammar, which says where the answer ends."
        raise Problem(400, message, param="ignore_eos")
    return await service.compile_grammar(model, wanted.grammar, wanted.param)


def _prompt_group(asked: GenerationRequest) -> int:
    """Equal for requests that begin with the same instructions."""
    if not isinstance(asked, ChatRequest):
        return 0
    instructions = takewhile(lambda each: each.role in INSTRUCTING_ROLES, asked.messages)
    return crc32("\n".join(each.content for each in instructions).encode())


def _check_token_ids(asked: GenerationRequest, vocab_size: int) -> None:
    biased = [token for token, _ in asked.logit_bias]
    for param, token_ids in (("logit_bias", biased), ("stop_token_ids", asked.stop_token_ids)):
        if any(not 0 <= token < vocab_size for token in token_ids):
            raise Problem(
                400, f"{param}: token ids must be from 0 to {vocab_size - 1}.", param=param
            )


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
