# SPDX-License-Identifier: Apache-2.0
"""Engines of the instruction set that every machine has, and of the best that this one has."""

import pytest

from headway_server.native.engine import Engine


@pytest.fixture(scope="session", params=["portable", "best"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return Engine(2, "portable" if request.param == "portable" else None)
