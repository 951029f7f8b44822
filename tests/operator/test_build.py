# SPDX-License-Identifier: Apache-2.0
"""The manifests: secure by construction, deterministic, and rolling pods only when they must."""

import copy
import dataclasses
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from headway_operator.build import Child
from headway_operator.build.metadata import SEAL_ANNOTATION
from headway_operator.contains import contains
from headway_operator.pool import InvalidSpec
from headway_operator.resources import (
    DEPLOYMENTS,
    NETWORKPOLICIES,
    SERVICES,
    Manifest,
    Manifests,
    Resource,
)
from tests.operator.given import decision, pool

GOLDEN = Path(__file__).parent / "golden"
RICH: Manifest = {
    "replicas": 3,
    "model": {
        "name": "meta-llama/Llama-3.1-8B-Instruct",
        "revision": "0e9e39f249a16976918f6564b8830bc894c89659",
        "tokenSecretRef": {"name": "hf-token"},
        "dtype": "BFloat16",
        "servedName": "llama",
    },
    "engine": {
        "maxInputTokens": 6000,
        "kvCacheCapacityTokens": 400_000,
        "extraArgs": ["--runner", "simulated"],
    },
    "scheduling": {
        "nodeSelector": {"gpu": "h200"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "priorityClassName": "serving",
        "runtimeClassName": "nvidia",
        "queueName": "team-a",
        "spread": "Zone",
    },
    "rollout": {"maxSurge": "25%", "maxUnavailable": 1, "drainTimeoutSeconds": 60},
    "access": {"allowedClients": [{"namespaceSelector": {"matchLabels": {"team": "b"}}}]},
}
IMAGE_MODEL = {
    "model": {"name": "tiny", "source": "Image", "image": {"reference": "localhost/tiny:1"}},
    "resources": {"gpu": {"count": 0}, "cpu": 2, "memory": "4Gi"},
}
CLAIM_MODEL = {
    "model": {
        "name": "acme/tiny",
        "source": "PersistentVolumeClaim",
        "persistentVolumeClaim": {"claimName": "weights", "path": "/store/"},
    }
}
SPECS = {"minimal": {}, "rich": RICH, "image": IMAGE_MODEL, "claim": CLAIM_MODEL}


def children(spec: Manifest | None = None) -> tuple[Child, ...]:
    return decision(pool(spec)).children


def child(resource: Resource, spec: Manifest | None = None) -> Manifest:
    return next(item.manifest for item in children(spec) if item.resource == resource)


def template(spec: Manifest | None = None) -> Manifest:
    found: Manifest = child(DEPLOYMENTS, spec)["spec"]["template"]
    return found


def container(spec: Manifest | None = None) -> Manifest:
    (only,) = template(spec)["spec"]["containers"]
    found: Manifest = only
    return found


@pytest.mark.parametrize("name", SPECS)
def test_manifests_are_as_recorded(name: str) -> None:
    """A change here changes clusters: a changed pod template rolls every GPU pod of every pool."""
    plain = json.loads(json.dumps([item.manifest for item in children(SPECS[name])]))
    made = yaml.safe_dump_all(plain, sort_keys=False)
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(made)
    assert made == path.read_text()


@pytest.mark.parametrize("name", SPECS)
def test_pods_meet_the_restricted_pod_security_standard(name: str) -> None:
    spec = template(SPECS[name])["spec"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] != 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    sources = {key for volume in spec["volumes"] for key in volume.keys() - {"name"}}
    assert sources <= {"configMap", "emptyDir", "persistentVolumeClaim", "image"}
    for item in spec["containers"]:
        context = item["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["readOnlyRootFilesystem"] is True
        assert "privileged" not in context
        assert all("hostPort" not in port for port in item["ports"])
        assert all("subPath" not in mount for mount in item["volumeMounts"])


def test_every_writable_folder_is_a_bounded_volume() -> None:
    volumes = {volume["name"]: volume for volume in template()["spec"]["volumes"]}
    writable = [item for item in container()["volumeMounts"] if not item.get("readOnly")]
    assert {item["mountPath"] for item in writable} == {"/tmp", "/cache", "/dev/shm"}
    assert all(volumes[item["name"]]["emptyDir"]["sizeLimit"] for item in writable)


hot = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(0, 50),
        "autotune": st.fixed_dictionaries({"mode": st.sampled_from(["Auto", "Disabled"])}),
        "access": st.fixed_dictionaries({"networkPolicy": st.sampled_from(["Open", "Namespace"])}),
        "engine": st.fixed_dictionaries(
            {
                "maxConcurrentRequests": st.integers(1, 999),
                "scheduling": st.fixed_dictionaries(
                    {
                        "policy": st.sampled_from(["Continuous", "MultiBin"]),
                        "outputReservation": st.sampled_from(["Expected", "Full"]),
                    }
                ),
            }
        ),
        "workloads": st.lists(
            st.fixed_dictionaries(
                {
                    "name": st.sampled_from("abc"),
                    "className": st.sampled_from(["chat", "batch"]),
                    "weight": st.integers(1, 9),
                    "batching": st.fixed_dictionaries(
                        {"maxBatchTotalTokens": st.integers(8192, 10**6)}
                    ),
                }
            ),
            min_size=1,
            max_size=3,
            unique_by=lambda item: item["name"],
        ),
    },
)


@settings(max_examples=40)
@given(hot)
def test_no_hot_value_and_no_scale_reaches_the_pod_template(spec: Manifest) -> None:
    assert template(spec) == template()


@given(st.permutations(["a", "b", "c"]))
def test_the_order_of_labels_a_user_writes_is_no_change(keys: list[str]) -> None:
    shuffled = {"scheduling": {"nodeSelector": dict.fromkeys(keys, "1")}}
    straight = {"scheduling": {"nodeSelector": dict.fromkeys("abc", "1")}}
    live, desired = child(DEPLOYMENTS, straight), child(DEPLOYMENTS, shuffled)
    assert contains(live, desired)
    assert live["metadata"]["annotations"] == desired["metadata"]["annotations"]


RESTART: list[Manifest] = [
    {"model": {"name": "acme/other"}},
    {"model": {"name": "acme/tiny", "revision": "v2"}},
    {"model": {"name": "acme/tiny", "dtype": "Float16"}},
    {"model": {"name": "acme/tiny", "quantization": "Int8"}},
    {"engine": {"maxInputTokens": 100}},
    {"engine": {"kvCacheDtype": "Fp8"}},
    {"engine": {"prefixCaching": "Disabled"}},
    {"engine": {"image": "own:1"}},
    {"resources": {"memory": "1Gi"}},
    {"resources": {"gpu": {"count": 2}}},
    {"scheduling": {"nodeSelector": {"a": "b"}}},
]


@pytest.mark.parametrize("spec", RESTART, ids=str)
def test_a_restart_field_changes_the_pod_template(spec: Manifest) -> None:
    assert template(spec) != template()


def test_dropping_a_field_changes_the_seal() -> None:
    with_it, without = RICH, {**RICH, "scheduling": {}}
    live, desired = child(DEPLOYMENTS, with_it), child(DEPLOYMENTS, without)
    seals = [item["metadata"]["annotations"][SEAL_ANNOTATION] for item in (live, desired)]
    assert seals[0] != seals[1]
    assert not contains(live, desired)


def test_a_gpu_is_asked_for_only_when_there_is_one() -> None:
    amounts = container(IMAGE_MODEL)["resources"]
    assert amounts["requests"] == amounts["limits"] == {"cpu": "2", "memory": "4Gi"}
    assert container()["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert flag("--device", IMAGE_MODEL) == "cpu"
    assert flag("--device") == "cuda"


@pytest.mark.parametrize(
    ("cpu", "gpus", "threads"),
    [("4", 0, "4"), ("2500m", 0, "2"), ("500m", 0, "1"), (3, 0, "3"), ("4", 1, None)],
)
def test_a_cpu_server_computes_on_as_many_threads_as_it_has_cpus(
    cpu: str | int, gpus: int, threads: str | None
) -> None:
    spec = {"resources": {"cpu": cpu, "gpu": {"count": gpus}}}
    env = {item["name"]: item.get("value") for item in container(spec)["env"]}
    assert env.get("OMP_NUM_THREADS") == threads


def flag(name: str, spec: Manifest | None = None) -> str | None:
    words: list[str] = container(spec)["args"]
    return words[words.index(name) + 1] if name in words else None


def test_the_server_is_told_the_envelope() -> None:
    assert container(RICH)["args"][0] == "serve"
    assert flag("--max-input-tokens", RICH) == "6000"
    assert flag("--max-total-tokens", RICH) == "8192"
    assert flag("--kv-cache-capacity-tokens", RICH) == "400000"
    assert flag("--kv-cache-capacity-tokens") is None
    assert flag("--dtype", RICH) == "bfloat16"
    assert flag("--served-name", RICH) == "llama"
    assert flag("--served-name") == "chat"
    assert flag("--runtime-file") == "/etc/headway/runtime/runtime.json"
    assert flag("--drain-timeout-seconds", RICH) == "60"
    assert template(RICH)["spec"]["terminationGracePeriodSeconds"] > 60
    assert container(RICH)["args"][-2:] == ["--runner", "simulated"]


def test_the_server_is_told_of_precision_once_it_is_not_the_models() -> None:
    asked = {
        "model": {"name": "acme/tiny", "quantization": "Int8"},
        "engine": {"kvCacheDtype": "Fp8"},
    }
    assert flag("--quantization", asked) == "int8"
    assert flag("--kv-cache-dtype", asked) == "fp8"
    assert flag("--quantization") is flag("--kv-cache-dtype") is None


def test_the_server_is_told_of_prefix_caching_once_it_is_off() -> None:
    assert flag("--prefix-caching", {"engine": {"prefixCaching": "Disabled"}}) == "disabled"
    assert flag("--prefix-caching", {"engine": {"prefixCaching": "Enabled"}}) is None


@pytest.mark.parametrize(
    ("spec", "location", "offline"),
    [
        ({}, "acme/tiny", False),
        (IMAGE_MODEL, "/models/tiny", True),
        (CLAIM_MODEL, "/models/store/acme/tiny", True),
    ],
)
def test_where_the_weights_are(spec: Manifest, location: str, offline: bool) -> None:
    env = {item["name"]: item for item in container(spec)["env"]}
    mounts = [item for item in container(spec)["volumeMounts"] if item["mountPath"] == "/models"]
    assert flag("--model", spec) == location
    assert ("HF_HUB_OFFLINE" in env) is offline
    assert ("HF_HOME" in env) is not offline
    assert [item["readOnly"] for item in mounts] == ([True] if offline else [])


@pytest.mark.parametrize("path", ["..", "/a/../..", "../etc", "a/..", "/../../", "a\0b"])
def test_a_path_may_not_leave_the_volume(path: str) -> None:
    claim = {"claimName": "weights", "path": path}
    model = {"name": "m", "source": "PersistentVolumeClaim", "persistentVolumeClaim": claim}
    with pytest.raises(InvalidSpec, match="must not leave the volume"):
        children({"model": model})


def test_the_hub_token_stays_a_reference() -> None:
    env = {item["name"]: item for item in container(RICH)["env"]}
    assert env["HF_TOKEN"] == {
        "name": "HF_TOKEN",
        "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token"}},
    }


def rules(direction: str, spec: Manifest | None = None) -> Manifests:
    found: Manifests = child(NETWORKPOLICIES, spec)["spec"][direction]
    return found


def test_clients_of_the_namespace_and_listed_ones_reach_the_http_port_only() -> None:
    http, metrics = rules("ingress", RICH)
    assert http["from"] == [
        {"podSelector": {}},
        {"namespaceSelector": {"matchLabels": {"team": "b"}}},
    ]
    assert [port["port"] for port in http["ports"]] == [8000]
    assert [port["port"] for port in metrics["ports"]] == [9000]
    (scraper,) = metrics["from"]
    release = {"kubernetes.io/metadata.name": "headway-system"}
    assert scraper == {"namespaceSelector": {"matchLabels": release}}


def test_pods_reach_the_internet_only_while_weights_come_from_the_hub() -> None:
    dns, hub = rules("egress")
    assert {port["port"] for port in dns["ports"]} == {53}
    assert {port["port"] for port in hub["ports"]} == {443}
    blocks = [peer["ipBlock"] for peer in hub["to"]]
    assert "169.254.0.0/16" in blocks[0]["except"]
    assert "10.0.0.0/8" in blocks[0]["except"]
    assert len(rules("egress", IMAGE_MODEL)) == 1
    assert len(rules("egress", CLAIM_MODEL)) == 1


def test_an_open_pool_has_no_network_policy() -> None:
    kinds = [item.resource.kind for item in children({"access": {"networkPolicy": "Open"}})]
    assert kinds == ["ConfigMap", "ServiceAccount", "Deployment", "Service"]


def test_no_pod_comes_before_its_network_policy() -> None:
    kinds = [item.resource.kind for item in children()]
    assert kinds.index("NetworkPolicy") < kinds.index("Deployment")


@pytest.mark.parametrize("selector", [{}, {"matchLabels": {}}, {"matchExpressions": []}])
def test_a_client_selector_that_selects_everything_is_refused(selector: Manifest) -> None:
    for key in ("namespaceSelector", "podSelector"):
        spec = {"access": {"allowedClients": [{key: selector}]}}
        with pytest.raises(InvalidSpec, match=r"access\.allowedClients\.0"):
            children(spec)


def test_the_selector_has_no_version_and_pods_carry_what_it_selects() -> None:
    selected = child(DEPLOYMENTS, RICH)["spec"]["selector"]["matchLabels"]
    worn = template(RICH)["metadata"]["labels"]
    assert selected.items() <= worn.items()
    assert child(SERVICES)["spec"]["selector"] == selected
    assert "app.kubernetes.io/version" not in selected
    assert worn["app.kubernetes.io/version"] == "1.2.3"
    assert worn["kueue.x-k8s.io/queue-name"] == "team-a"


IMAGES = [
    ("a:1.2", "1.2"),
    ("registry:5000/a", None),
    ("registry:5000/a:v1@sha256:abc", "v1"),
    ("a@sha256:abc", None),
    ("a:" + "x" * 64, None),
]


@pytest.mark.parametrize(("image", "version"), IMAGES)
def test_the_version_label_is_the_servers_tag(image: str, version: str | None) -> None:
    labels = template({"engine": {"image": image}})["metadata"]["labels"]
    assert labels.get("app.kubernetes.io/version") == version


LABEL = re.compile(r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")


@settings(max_examples=30)
@given(st.from_regex(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", fullmatch=True))
def test_names_and_labels_fit_whatever_the_pool_is_called(name: str) -> None:
    for item in decision(dataclasses.replace(pool(), name=name)).children:
        assert len(item.name) <= 63
        values: dict[str, Any] = item.manifest["metadata"]["labels"]
        assert all(LABEL.match(value) for value in values.values())


def test_building_twice_gives_the_same_and_changes_nothing() -> None:
    subject = pool(RICH)
    first = decision(subject).children
    before = copy.deepcopy([item.manifest for item in first])
    assert [item.manifest for item in decision(subject).children] == before
    assert [item.manifest for item in first] == before
