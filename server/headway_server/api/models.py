# SPDX-License-Identifier: Apache-2.0
"""GET /v1/models, /v1/models/{id}, and the text for what this server does not do."""

from typing import Any

from fastapi import APIRouter, Request

from headway_server.problem import Problem
from headway_server.service import Service

router = APIRouter()


@router.get("/v1/models")
async def models(request: Request) -> dict[str, Any]:
    return {"object": "list", "data": [_card(request.app.state.service)]}


@router.get("/v1/models/{model:path}")
async def model(request: Request, model: str) -> dict[str, Any]:
    service: Service = request.app.state.service
    if model != service.served_name:
        raise Problem(
            404,
            f"There is no model {model!r} here; this server serves {service.served_name!r}.",
            code="model_not_found",
            param="model",
        )
    return _card(service)


@router.post("/v1/embeddings")
async def embeddings() -> None:
    raise Problem(
        404,
        "This server makes no embeddings: it serves a text generation model, "
        "on /v1/chat/completions and /v1/completions.",
        code="unsupported_endpoint",
    )


def _card(service: Service) -> dict[str, Any]:
    return {
        "id": service.served_name,
        "object": "model",
        "created": service.created,
        "owned_by": "headway",
    }
