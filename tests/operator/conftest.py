# SPDX-License-Identifier: Apache-2.0
"""One operator for all tests that need a cluster; each test has a namespace of its own."""

import os
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import load_kube_config

from headway_operator.kube import INFERENCEPOOLS, KubeApi
from headway_operator.options import Options
from headway_operator.permissions import PERMISSIONS
from tests.api_server import ApiServer
from tests.operator.prometheus_stub import PrometheusStub, prometheus_stub
from tests.operator.running_operator import RunningOperator
from tests.operator.world import NAMESPACES, STRICTEST, World

RELEASE = "headway-system"
ACCOUNT = "headway-operator"
SERVER_IMAGE = "localhost/headway/server:1.2.3"


@pytest.fixture(scope="session")
def prometheus() -> Iterator[PrometheusStub]:
    with prometheus_stub() as stub:
        yield stub


@pytest.fixture(scope="session")
def operator_kubeconfig(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Credentials of a service account that may do exactly what the table of permissions says."""
    manifests = tmp_path_factory.mktemp("rbac") / "rbac.yaml"
    manifests.write_text(yaml.safe_dump_all(_account()))
    api_server.kubectl("apply", "-f", str(manifests))
    token = api_server.kubectl("create", "token", ACCOUNT, "-n", RELEASE).strip()
    config = yaml.safe_load(api_server.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path = tmp_path_factory.mktemp("operator") / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


def _account() -> list[dict[str, object]]:
    meta = {"name": ACCOUNT}
    rules = [
        {"apiGroups": [row.group], "resources": [row.resource], "verbs": list(row.verbs)}
        for row in PERMISSIONS
    ]
    rbac = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": RELEASE}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RELEASE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {**meta, "namespace": RELEASE}},
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": meta, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": ACCOUNT},
            "subjects": [subject],
        },
    ]


@pytest.fixture(scope="session")
def running_operator(
    operator_kubeconfig: Path, prometheus: PrometheusStub
) -> Iterator[RunningOperator]:
    options = Options(
        server_image=SERVER_IMAGE,
        providers={"default": prometheus.url},
        release_namespace=RELEASE,
        resync_seconds=300.0,
        targets_port=0,
    )
    before = os.environ.get("KUBECONFIG")
    os.environ["KUBECONFIG"] = str(operator_kubeconfig)
    operator = RunningOperator(options)
    operator.start()
    yield operator
    if operator.running:
        operator.stop()
    if before is None:
        del os.environ["KUBECONFIG"]
    else:
        os.environ["KUBECONFIG"] = before


@pytest.fixture
async def admin(api_server: ApiServer) -> AsyncIterator[KubeApi]:
    configuration = Configuration()
    await load_kube_config(
        config_file=str(api_server.kubeconfig), client_configuration=configuration
    )
    api = KubeApi(ApiClient(configuration))
    yield api
    await api.close()


@pytest.fixture
async def world(
    admin: KubeApi, running_operator: RunningOperator, prometheus: PrometheusStub
) -> AsyncIterator[World]:
    """A namespace that admits pods of the strictest Pod Security level only.

    Its pools go when the test ends, so that the operator has nothing left to do for them.
    """
    name = f"t-{uuid.uuid4().hex[:8]}"
    await admin.create(
        NAMESPACES,
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": STRICTEST},
        },
    )
    world = World(admin, name, prometheus)
    yield world
    for pool in await admin.list(INFERENCEPOOLS, name):
        await world.delete_pool(pool["metadata"]["name"])
