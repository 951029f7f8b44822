# SPDX-License-Identifier: Apache-2.0
"""A real API server for the tests that need one, started once a session when first asked for."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cluster.controlplane import ControlPlane
from cluster.controlplane import control_plane as run_control_plane
from tests.api_server import ApiServer, connect

CRDS = Path(__file__).parents[1] / "crds"


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver, without Headway's CRDs."""
    with run_control_plane(tmp_path_factory.mktemp("control-plane")) as running:
        yield running


@pytest.fixture(scope="session")
def api_server(control_plane: ControlPlane) -> Iterator[ApiServer]:
    """A client of an API server on which Headway's CRDs are installed."""
    with connect(control_plane.kubeconfig) as client:
        for path in sorted(CRDS.glob("*.yaml")):
            client.install(yaml.safe_load(path.read_text()))
        yield client
