# SPDX-License-Identifier: Apache-2.0
"""GET /health: alive and able to progress, also while loading or draining. GET /ready: send
requests here."""

import orjson
from fastapi import APIRouter, Request, Response

from headway_server.service import Phase, Service

router = APIRouter()


@router.get("/health")
async def health(request: Request) -> Response:
    service: Service = request.app.state.service
    trouble = service.trouble()
    return _probe(trouble is None, trouble or "ok")


@router.get("/ready")
async def ready(request: Request) -> Response:
    service: Service = request.app.state.service
    trouble = service.trouble()
    return _probe(service.phase is Phase.READY and trouble is None, trouble or service.phase)


def _probe(good: bool, status: str) -> Response:
    return Response(
        orjson.dumps({"status": status}), 200 if good else 503, media_type="application/json"
    )
