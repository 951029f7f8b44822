# SPDX-License-Identifier: Apache-2.0
"""One cluster and one release for all scenarios; each scenario has a namespace of its own."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from demo import release
from demo.kubectl import Tools


@pytest.fixture(scope="session")
def installed() -> Tools:
    """kubectl and helm on a cluster that has the chart installed, with images of this tree."""
    release.cluster_up()
    release.build_and_load_images()
    return release.install()


@pytest.fixture(scope="module")
def tools(installed: Tools, request: pytest.FixtureRequest) -> Iterator[Tools]:
    """The same, speaking to a fresh namespace named after the scenario's module."""
    name = re.sub(r"[^a-z0-9]+", "-", request.module.__name__.rsplit(".", 1)[-1])
    installed.run("kubectl", "create", "namespace", name)
    yield replace(installed, namespace=name)
    installed.run("kubectl", "delete", "namespace", name)
