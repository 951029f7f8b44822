# SPDX-License-Identifier: Apache-2.0
"""The HTTP application: routes, error form and the layer around them. State: one `Service`."""

from fastapi import FastAPI
from starlette.types import ASGIApp

from headway_server.api import completions, models, probes
from headway_server.api.errors import add_error_handlers
from headway_server.api.request_note import RequestNotes
from headway_server.service import Service


def create_app(service: Service) -> ASGIApp:
    app = FastAPI(openapi_url=None, redirect_slashes=False)
    app.state.service = service
    add_error_handlers(app)
    for routes in (completions, models, probes):
        app.include_router(routes.router)
    return RequestNotes(app)
