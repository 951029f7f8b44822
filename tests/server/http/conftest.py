# SPDX-License-Identifier: Apache-2.0
from collections.abc import AsyncIterator

import pytest
from tests.server.http.serving import Serving, new_serving


@pytest.fixture
async def loading() -> AsyncIterator[Serving]:
    """HTTP is up, the model is not there yet, and no step ends unless it is let through."""
    with new_serving() as serving:
        yield serving
        await serving.client.aclose()


@pytest.fixture
async def gated(loading: Serving) -> Serving:
    """Ready; no step ends unless it is let through."""
    loading.start()
    return loading


@pytest.fixture
async def ready(gated: Serving) -> Serving:
    """Ready, with steps that take no time."""
    gated.gate.open()
    return gated
