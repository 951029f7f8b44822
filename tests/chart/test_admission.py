# SPDX-License-Identifier: Apache-2.0
"""A real API server takes every object as it is, and the pods under the restricted standard."""

import json

import pytest

from cluster.failure import ClusterError
from cluster.kubectl import kubectl
from tests.api_server import ApiServer
from tests.chart.helm import NAMESPACE, Manifest, of_kind, render

ENFORCE = "pod-security.kubernetes.io/enforce"
EVERYTHING = (
    'watchNamespaces=["default"]',
    'metricsProviders=[{"name":"fleet","url":"http://p.example.com"}]',
    'networkPolicy.metricsFrom=[{"namespaceSelector":{}}]',
    'operator.nodeSelector={"disk":"ssd"}',
    'operator.tolerations=[{"operator":"Exists"}]',
    'tuner.priorityClassName="system-cluster-critical"',
    'prometheus.podAnnotations={"a":"b"}',
    'global.imagePullSecrets=[{"name":"s"}]',
)


@pytest.fixture(scope="module")
def server(api_server: ApiServer) -> ApiServer:
    api_server.create_namespace(NAMESPACE)
    api_server.kubectl("label", "namespace", NAMESPACE, f"{ENFORCE}=restricted")
    return api_server


def created(server: ApiServer, *objects: Manifest) -> None:
    """A dry run under strict validation; raises ClusterError with the server's words."""
    document = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    cache = f"--cache-dir={server.kubeconfig.parent / 'kubectl-cache'}"
    flags = ("--dry-run=server", "--validate=strict", "-f", "-")
    kubectl(server.kubeconfig, cache, "create", *flags, stdin=document)


def pods(objects: list[Manifest]) -> list[Manifest]:
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": deployment["spec"]["template"]["spec"],
        }
        for name, deployment in of_kind(objects, "Deployment").items()
    ]


@pytest.mark.parametrize("sets", [(), EVERYTHING], ids=["defaults", "everything set"])
def test_the_api_server_takes_every_object(server: ApiServer, sets: tuple[str, ...]) -> None:
    objects = render(*sets)
    created(server, *(held for held in objects if held["kind"] != "CustomResourceDefinition"))


def test_every_pod_meets_the_restricted_standard(
    server: ApiServer, objects: list[Manifest]
) -> None:
    rendered = pods(objects)
    assert len(rendered) == 3
    created(server, *rendered)


def test_the_standard_is_enforced_here(server: ApiServer, objects: list[Manifest]) -> None:
    pod = pods(objects)[0]
    loose = {**pod, "spec": {**pod["spec"], "hostNetwork": True}}
    with pytest.raises(ClusterError, match="violates PodSecurity"):
        created(server, loose)


def test_what_the_standard_does_not_ask_for(objects: list[Manifest]) -> None:
    for name, deployment in of_kind(objects, "Deployment").items():
        assert deployment["spec"]["replicas"] == 1, name
        assert deployment["spec"]["strategy"] == {"type": "Recreate"}, name
        pod = deployment["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["resources"].keys() == {"requests", "limits"}
        assert container["livenessProbe"]
        assert container["readinessProbe"]
    for account in of_kind(objects, "ServiceAccount").values():
        assert account["automountServiceAccountToken"] is False
