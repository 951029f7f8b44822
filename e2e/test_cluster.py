# SPDX-License-Identifier: Apache-2.0
"""The cluster of our own does what a user's would: pods, Services, DNS, policies, GPUs, images.

These scenarios are about that cluster alone, so they look past a KUBECONFIG of the user's.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import addresses, baseimages, containerd, devices, images, state
from cluster import kubectl as client
from cluster.failure import ClusterError
from cluster.processes import wait_until

IMAGE = "localhost/cluster-test:1"
PATIENCE = 120.0
OWN_NAMESPACE, OTHER_NAMESPACE = "cluster-test", "cluster-test-other"
SERVE = "busybox hostname > /index.html; exec busybox httpd -f -p 8080 -h /"


def run_cluster(*arguments: str) -> str:
    """What `python -m cluster` printed, with our own cluster in use."""
    environment = {k: v for k, v in os.environ.items() if k != "KUBECONFIG"}
    environment["PYTHONPATH"] = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-m", "cluster", *arguments],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def kubectl(*arguments: str, stdin: str | None = None) -> str:
    return client.kubectl(state.state().kubeconfig, *arguments, stdin=stdin)


def get(*arguments: str) -> Any:
    return client.get(state.state().kubeconfig, *arguments)


def apply(*manifests: dict[str, Any]) -> None:
    kubectl("apply", "--filename=-", stdin="\n---\n".join(json.dumps(m) for m in manifests))


def eventually(condition: Callable[[], bool], what: str) -> None:
    wait_until(condition, what, PATIENCE, failed=lambda: None)


def pod(name: str, namespace: str = OWN_NAMESPACE, gpus: int = 0, **spec: Any) -> dict[str, Any]:
    """A pod that waits, without a shell of its own to end it quickly."""
    container: dict[str, Any] = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/busybox", "sleep", "3600"],
        "volumeMounts": spec.pop("mounts", []),
    }
    if gpus:
        container["resources"] = {"limits": {devices.RESOURCE: str(gpus)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **spec},
    }


def web() -> tuple[dict[str, Any], dict[str, Any]]:
    """Two pods that answer with their own name, and a Service before them."""
    labels = {"app": "web"}
    metadata = {"name": "web", "namespace": OWN_NAMESPACE}
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/busybox", "sh", "-c", SERVE],
        "readinessProbe": {"httpGet": {"path": "/index.html", "port": 8080}, "periodSeconds": 1},
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
            },
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    return deployment, service


def wait_for_pod(name: str, namespace: str = OWN_NAMESPACE) -> None:
    kubectl(
        "wait",
        f"--namespace={namespace}",
        "--for=condition=Ready",
        f"--timeout={PATIENCE:.0f}s",
        f"pod/{name}",
    )


def shell(script: str, namespace: str = OWN_NAMESPACE) -> str:
    """Runs in the pod `client` of that namespace."""
    command = ("exec", f"--namespace={namespace}", "client", "--", "/bin/busybox", "sh", "-c")
    return kubectl(*command, script)


def ask(address: str, namespace: str = OWN_NAMESPACE) -> str:
    """The answering pod's name; empty when the connection does not come about within 2 s."""
    request = "busybox printf 'GET /index.html HTTP/1.0\\r\\n\\r\\n'"
    try:
        answer = shell(f"{request} | busybox nc -w 2 {address} 80", namespace)
    except ClusterError:
        return ""
    return answer.splitlines()[-1] if answer else ""


@pytest.fixture(scope="module", autouse=True)
def namespaces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A running cluster, the test image in it, and a client pod in each of two namespaces."""
    run_cluster("up")
    archive = tmp_path_factory.mktemp("image") / "image.tar"
    files = {"/bin/busybox": Path("/bin/busybox").read_bytes(), "/model/config.json": b"{}\n"}
    images.write_archive(archive, IMAGE, files, ["/bin/busybox"], baseimages.architecture())
    run_cluster("load-image", str(archive))
    names = (OWN_NAMESPACE, OTHER_NAMESPACE)
    for name in names:
        apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        )
        eventually(
            lambda name=name: "default" in kubectl("get", "serviceaccounts", f"-n{name}"),  # type: ignore[misc]
            "the namespace's service account",
        )
        apply(pod("client", name))
    apply(*web())
    for name in names:
        wait_for_pod("client", name)
    yield
    kubectl("delete", "namespace", *names)


def test_a_deployment_becomes_ready() -> None:
    kubectl("rollout", "status", f"--namespace={OWN_NAMESPACE}", "--timeout=120s", "deployment/web")


def test_a_service_is_found_by_name_and_spreads_over_its_pods() -> None:
    pods = get(f"--namespace={OWN_NAMESPACE}", "pods", "--selector=app=web")["items"]
    wanted = {item["metadata"]["name"] for item in pods}
    seen: set[str] = set()

    def both_answered() -> bool:
        seen.add(ask("web"))
        return wanted <= seen

    eventually(both_answered, "an answer from both pods")


def test_a_name_resolves_across_namespaces() -> None:
    address = get(f"--namespace={OWN_NAMESPACE}", "service", "web")["spec"]["clusterIP"]
    name = f"web.{OWN_NAMESPACE}.svc.{addresses.DNS_DOMAIN}"
    assert address in shell(f"busybox nslookup {name}", OTHER_NAMESPACE)


def test_logs_and_exec_reach_the_pod() -> None:
    assert shell("busybox hostname").strip() == "client"
    assert kubectl("logs", f"--namespace={OWN_NAMESPACE}", "client") == ""


def test_a_network_policy_admits_the_same_namespace_and_refuses_another() -> None:
    address = get(f"--namespace={OWN_NAMESPACE}", "service", "web")["spec"]["clusterIP"]
    eventually(lambda: ask(address, OTHER_NAMESPACE) != "", "an answer before there is a policy")
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "same-namespace", "namespace": OWN_NAMESPACE},
        "spec": {
            "podSelector": {"matchLabels": {"app": "web"}},
            "ingress": [{"from": [{"podSelector": {}}]}],
        },
    }
    apply(policy)
    eventually(lambda: ask(address, OTHER_NAMESPACE) == "", "the policy to be in force")
    assert ask(address, OWN_NAMESPACE) != ""
    kubectl("delete", f"--namespace={OWN_NAMESPACE}", "networkpolicy", "same-namespace")
    eventually(lambda: ask(address, OTHER_NAMESPACE) != "", "an answer after the policy is gone")


def test_a_pod_gets_a_gpu_and_one_too_many_stays_pending() -> None:
    capacity = devices.gpus(get("node", addresses.NODE_NAME))
    apply(pod("fits", gpus=1))
    wait_for_pod("fits")
    apply(pod("excess", gpus=capacity))

    def refusal() -> str:
        status = get(f"--namespace={OWN_NAMESPACE}", "pod", "excess")["status"]
        conditions = {c["type"]: c.get("message", "") for c in status.get("conditions", [])}
        return str(conditions.get("PodScheduled", ""))

    eventually(lambda: refusal() != "", "the scheduler's answer")
    assert "Insufficient nvidia.com/gpu" in refusal()
    kubectl("delete", f"--namespace={OWN_NAMESPACE}", "pod", "fits", "excess")


def test_an_image_is_mounted_as_a_volume() -> None:
    volume = {"name": "model", "image": {"reference": IMAGE, "pullPolicy": "Never"}}
    mount = {"name": "model", "mountPath": "/mnt", "readOnly": True}
    apply(pod("reader", mounts=[mount], volumes=[volume]))
    wait_for_pod("reader")
    command = ("exec", f"--namespace={OWN_NAMESPACE}", "reader", "--", "/bin/busybox")
    assert kubectl(*command, "cat", "/mnt/model/config.json") == "{}\n"
    with pytest.raises(ClusterError, match="Read-only file system"):
        kubectl(*command, "touch", "/mnt/model/more")


def test_a_second_up_changes_nothing() -> None:
    before = state.state().processes()
    assert "running already" in run_cluster("up")
    assert state.state().processes() == before
    assert "Ready" in run_cluster("status")


def test_the_same_image_is_not_taken_in_twice(tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    write_image(archive, "localhost/twice:1", os.urandom(16))
    assert "loaded" in run_cluster("load-image", str(archive))
    assert "already there" in run_cluster("load-image", str(archive))


def test_a_new_image_on_a_layer_that_is_there_is_whole(tmp_path: Path) -> None:
    content = os.urandom(1 << 20)
    for name in ("localhost/first:1", "localhost/second:1"):
        written = write_image(tmp_path / "image.tar", name, content, command=f"/{name}")
        run_cluster("load-image", str(tmp_path / "image.tar"))
        assert containerd.image_digests(state.state())[name] == written.digest


def write_image(archive: Path, name: str, content: bytes, command: str = "/x") -> images.Image:
    machine = baseimages.architecture()
    return images.write_archive(archive, name, {"/x": content}, [command], machine)
