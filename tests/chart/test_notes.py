# SPDX-License-Identifier: Apache-2.0
"""What helm prints after an install works as it stands, and warns of what is missing."""

import json
import re
import subprocess
from typing import Any

import pytest
import yaml

from cluster.binaries import binary
from tests.api_server import ApiServer
from tests.chart.helm import CHART, NAMESPACE, RELEASE


def notes(*sets: str) -> str:
    command = [str(binary("helm")), "install", RELEASE, str(CHART), "--namespace", NAMESPACE]
    command += ["--dry-run=client", *(word for pair in sets for word in ("--set-json", pair))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.partition("\nNOTES:\n")[2]


@pytest.fixture(scope="module")
def plain() -> str:
    return notes()


@pytest.fixture(scope="module")
def pool(plain: str) -> dict[str, Any]:
    written = plain.partition("<<POOL\n")[2].partition("POOL\n")[0]
    manifest: dict[str, Any] = yaml.safe_load(written)
    return manifest


def test_the_first_pool_is_taken_by_the_api_server(
    api_server: ApiServer, pool: dict[str, Any]
) -> None:
    namespace = pool["metadata"]["namespace"]
    answer = api_server.create("inferencepools", pool, namespace, dry_run=True)
    assert answer.is_success, answer.text


def test_the_next_commands_name_the_pool_that_was_applied(plain: str, pool: dict[str, Any]) -> None:
    name = pool["metadata"]["name"]
    assert f"inferencepools.serving.headway.dev/{name} " in plain
    assert f"service/{name} 8000:8000" in plain
    body = re.search(r"-d '(\{.*\})'", plain)
    assert body is not None
    assert json.loads(body[1])["model"] == pool["spec"]["model"].get("servedName", name)


def test_a_plain_install_warns_of_nothing(plain: str) -> None:
    assert "WARNING" not in plain


@pytest.mark.parametrize(
    ("value", "warning"),
    [
        ("prometheus.enabled=false", "nothing is\nmeasured"),
        ("rbac.create=false", "the operator does nothing until"),
        ("crds.keep=false", "deletes every pool"),
    ],
)
def test_what_leaves_something_out_is_said(value: str, warning: str) -> None:
    assert warning in notes(value)
