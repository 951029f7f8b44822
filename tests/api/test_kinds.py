# SPDX-License-Identifier: Apache-2.0
"""The kinds as users meet them: defaults, subresources, columns, names and field ownership."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from headway_api.builtin_classes import builtin_class_manifests
from headway_api.inferencepool import InferencePoolSpec
from headway_api.kinds import KINDS
from headway_api.names import INFERENCEPOOLS, OPERATOR_MANAGER, TUNER_MANAGER, WORKLOADCLASSES
from tests.api_server import ApiServer, collection

NAMESPACE = "kinds"
HERE = Path(__file__).parent
EXAMPLES = list(yaml.safe_load_all((HERE / "examples.yaml").read_text()))
MINIMAL_SPEC = yaml.safe_load((HERE / "minimal_spec.yaml").read_text())
KIND_OF = {kind.name: kind for kind in KINDS}


@pytest.fixture(scope="module")
def kinds(api_server: ApiServer) -> Iterator[ApiServer]:
    """The API server with every example in it."""
    api_server.create_namespace(NAMESPACE)
    for example in EXAMPLES:
        answer = api_server.create(KIND_OF[example["kind"]].plural, example, NAMESPACE)
        assert answer.is_success, answer.text
    yield api_server
    for example in EXAMPLES:
        plural, name = KIND_OF[example["kind"]].plural, example["metadata"]["name"]
        api_server.delete(plural, name, NAMESPACE)


def stored(kinds: ApiServer, plural: str, name: str) -> dict[str, Any]:
    return kinds.get(f"{collection(plural, NAMESPACE)}/{name}")


def test_the_minimal_pool_comes_back_with_every_default(kinds: ApiServer) -> None:
    assert stored(kinds, INFERENCEPOOLS, "minimal")["spec"] == MINIMAL_SPEC


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["metadata"]["name"])
def test_models_and_schema_agree_on_defaults(kinds: ApiServer, example: dict[str, Any]) -> None:
    kind = KIND_OF[example["kind"]]
    read = kind.spec.model_validate(example["spec"], extra="forbid")
    defaulted = read.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert stored(kinds, kind.plural, example["metadata"]["name"])["spec"] == defaulted


def test_the_builtin_classes_are_accepted_and_complete(kinds: ApiServer) -> None:
    for manifest in builtin_class_manifests():
        answer = kinds.create(WORKLOADCLASSES, manifest, dry_run=True)
        assert answer.is_success, answer.text
        assert answer.json()["spec"] == manifest["spec"]


def test_a_pool_scales_through_its_subresource(kinds: ApiServer) -> None:
    status = {"status": {"replicas": 2, "selector": "app.kubernetes.io/instance=support-chat"}}
    kinds.patch(
        INFERENCEPOOLS, "support-chat", status, NAMESPACE, subresource="status"
    ).raise_for_status()
    kinds.kubectl("scale", "hpool/support-chat", "--namespace", NAMESPACE, "--replicas", "2")

    assert stored(kinds, INFERENCEPOOLS, "support-chat")["spec"]["replicas"] == 2
    scale = kinds.get(f"{collection(INFERENCEPOOLS, NAMESPACE)}/support-chat/scale")
    assert scale["status"] == {"replicas": 2, "selector": status["status"]["selector"]}


def test_status_is_written_through_its_subresource_alone(kinds: ApiServer) -> None:
    change = {"spec": {"replicas": 9}, "status": {"url": "http://elsewhere"}}
    kinds.patch(INFERENCEPOOLS, "minimal", {"status": change["status"]}, NAMESPACE)
    assert "url" not in stored(kinds, INFERENCEPOOLS, "minimal").get("status", {})
    kinds.patch(INFERENCEPOOLS, "minimal", change, NAMESPACE, subresource="status", dry_run=True)
    assert stored(kinds, INFERENCEPOOLS, "minimal")["spec"]["replicas"] == 1


def test_kubectl_get_prints_the_columns(kinds: ApiServer) -> None:
    moment = "2026-01-02T03:04:05Z"
    conditions = [
        {"type": type_, "status": status, "reason": reason, "message": ""}
        | {"lastTransitionTime": moment}
        for type_, status, reason in (
            ("Ready", "False", "Unschedulable"),
            ("SLOMet", "Unknown", "InsufficientSamples"),
            ("RuntimeConfigSynced", "True", "Synced"),
        )
    ]
    status = {
        "readyReplicas": 0,
        "conditions": conditions,
        "tenant": {"policyName": "team-a"},
        "engine": {"image": "localhost/server:1"},
        "workloads": [
            {
                "name": "default",
                "effective": {"maxBatchTotalTokens": 65536, "waitingServedRatioPercent": 30},
            }
        ],
    }
    kinds.patch(
        INFERENCEPOOLS, "from-elsewhere", {"status": status}, NAMESPACE, subresource="status"
    ).raise_for_status()

    wide = table(kinds, "hpool", "from-elsewhere", "--output=wide")
    age = wide.pop("AGE")
    assert age
    assert wide == {
        "NAME": "from-elsewhere",
        "MODEL": "SmolLM2-135M-Instruct",
        "DESIRED": "0",
        "READY": "0",
        "STATUS": "False",
        "REASON": "Unschedulable",
        "SLO": "Unknown",
        "TUNING": "Recommend",
        "TOKENS": "65536",
        "WSR%": "30",
        "SYNCED": "True",
        "TENANT": "team-a",
        "IMAGE": "localhost/server:1",
    }
    narrow = table(kinds, "hpool", "from-elsewhere")
    assert list(wide)[: len(narrow) - 1] == [name for name in narrow if name != "AGE"]
    assert "TOKENS" not in narrow


def test_kubectl_get_prints_classes_and_policies(kinds: ApiServer) -> None:
    shown = table(kinds, "wlclass", "chat-example")
    assert (shown["PRIORITY"], shown["OBJECTIVE"]) == ("100", "MaximizeThroughput")
    policy = table(kinds, "tpol", "team-a")
    assert policy["ENFORCEMENT"] == "Enforce"
    assert {"NAMESPACES", "POOLS", "REFUSED", "GPUS", "STATUS", "AGE"} <= policy.keys()


def test_short_names_and_the_category_find_the_kinds(kinds: ApiServer) -> None:
    listed = kinds.kubectl("api-resources", "--categories=headway", "--no-headers").splitlines()
    assert {tuple(line.split()[:2]) for line in listed} == {
        (kind.plural, kind.short_name) for kind in KINDS
    }


def test_explain_reads_well(kinds: ApiServer) -> None:
    said = kinds.kubectl("explain", "hpool.spec.workloads.batching.maxBatchTotalTokens")
    assert "FIELD: maxBatchTotalTokens <integer>" in said
    assert "HOT. Tokens (prompt + reserved output) this workload may hold" in " ".join(said.split())
    assert "RESTART. Longest accepted prompt." in " ".join(
        kinds.kubectl("explain", "hpool.spec.engine").split()
    )


def test_pools_are_selected_by_model_and_by_policy(kinds: ApiServer) -> None:
    kinds.patch(
        INFERENCEPOOLS,
        "minimal",
        {"status": {"tenant": {"policyName": "team-b"}}},
        NAMESPACE,
        subresource="status",
    ).raise_for_status()
    assert selected(kinds, "spec.model.name=meta-llama/Llama-3.1-8B-Instruct") == {"support-chat"}
    assert selected(kinds, "status.tenant.policyName=team-b") == {"minimal"}


def test_two_managers_share_a_workload_of_the_status(kinds: ApiServer) -> None:
    def apply(manager: str, **values: Any) -> None:
        workload = {"name": "default", **values}
        document = {
            "apiVersion": "serving.headway.dev/v1alpha1",
            "kind": "InferencePool",
            "metadata": {"name": "minimal"},
            "status": {"workloads": [workload]},
        }
        kinds.apply(INFERENCEPOOLS, document, manager, NAMESPACE, subresource="status")

    apply(OPERATOR_MANAGER, effective={"maxBatchTotalTokens": 100}, source="Spec")
    apply(TUNER_MANAGER, recommended={"maxBatchTotalTokens": 120}, sampleCount=7)
    apply(OPERATOR_MANAGER, effective={"maxBatchTotalTokens": 110}, source="Spec")
    assert stored(kinds, INFERENCEPOOLS, "minimal")["status"]["workloads"] == [
        {
            "name": "default",
            "effective": {"maxBatchTotalTokens": 110},
            "source": "Spec",
            "recommended": {"maxBatchTotalTokens": 120},
            "sampleCount": 7,
        }
    ]


def test_what_the_api_server_stores_the_operator_reads(kinds: ApiServer) -> None:
    spec = stored(kinds, INFERENCEPOOLS, "support-chat")["spec"]
    read = InferencePoolSpec.model_validate(spec, extra="forbid")
    assert [workload.name for workload in read.workloads] == ["chat", "nightly"]


def selected(kinds: ApiServer, selector: str) -> set[str]:
    found = kinds.get(collection(INFERENCEPOOLS, NAMESPACE), fieldSelector=selector)["items"]
    return {item["metadata"]["name"] for item in found}


def table(kinds: ApiServer, *arguments: str) -> dict[str, str]:
    """The header and the only row of `kubectl get`, cell by cell."""
    printed = kinds.kubectl("get", *arguments, "--namespace", NAMESPACE)
    header, row = printed.splitlines()
    names = header.split()
    starts = [header.index(name) for name in names]
    ends = [*starts[1:], None]
    cells = [row[start:end].strip() for start, end in zip(starts, ends, strict=True)]
    return dict(zip(names, cells, strict=True))
