# SPDX-License-Identifier: Apache-2.0
"""The committed YAML is what the models say, and says what every CRD of Headway must."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from headway_api.__main__ import CHECKOUT, FOLDERS, crd_yaml, main
from headway_api.crd import Kind, crd_manifest
from headway_api.kinds import INFERENCE_POOL_KIND, KINDS

# Keywords an API server refuses, or that would switch pruning off.
FORBIDDEN = {"$ref", "anyOf", "oneOf", "allOf", "nullable", "x-kubernetes-preserve-unknown-fields"}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.plural)
@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_the_committed_yaml_is_current(kind: Kind, folder: Path) -> None:
    committed = (CHECKOUT / folder / kind.file_name).read_text()
    assert committed == crd_yaml(kind), "run `python -m headway_api`"


def test_check_names_the_files_that_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--root", str(tmp_path)]
    assert main(where) == 0
    assert main([*where, "--check"]) == 0
    changed = tmp_path / FOLDERS[0] / KINDS[0].file_name
    changed.write_text(changed.read_text().replace("maximum: 1024", "maximum: 1025"))
    (tmp_path / FOLDERS[1] / KINDS[1].file_name).unlink()
    capsys.readouterr()

    assert main([*where, "--check"]) == 1
    named = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in named] == [
        str(changed),
        str(tmp_path / FOLDERS[1] / KINDS[1].file_name),
    ]
    assert "maximum: 1025" in changed.read_text()


def test_writing_mends_what_differs(tmp_path: Path) -> None:
    main(["--root", str(tmp_path)])
    broken = tmp_path / FOLDERS[0] / KINDS[0].file_name
    broken.write_text("")
    assert main(["--root", str(tmp_path)]) == 0
    assert broken.read_text() == crd_yaml(KINDS[0])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.plural)
def test_every_field_is_explained(kind: Kind) -> None:
    schema = crd_manifest(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    unexplained = [
        path
        for part in ("spec", "status")
        for path, node in nodes(schema["properties"][part], part)
        if not node.get("description", "").endswith(".")
    ]
    assert unexplained == []


def test_descriptions_say_what_a_change_costs() -> None:
    schema = crd_manifest(INFERENCE_POOL_KIND)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    said = {
        path: node["description"].split(".")[0].split(",")[0]
        for path, node in nodes(schema["properties"]["spec"], "spec")
    }
    assert said["spec.model.name"] == "RESTART"
    assert said["spec.engine.maxTotalTokens"] == "RESTART"
    assert said["spec.engine.maxConcurrentRequests"] == "HOT"
    assert said["spec.engine.scheduling.policy"] == "HOT"
    batching = [path for path in said if path.startswith("spec.workloads[].batching.")]
    assert {said[path] for path in batching} == {"HOT"}
    assert {said[path] for path in said if path.startswith("spec.resources")} == {"RESTART"}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.plural)
def test_one_version_is_served_and_stored_without_conversion(kind: Kind) -> None:
    spec = crd_manifest(kind)["spec"]
    served = [(v["name"], v["served"], v["storage"]) for v in spec["versions"]]
    assert served == [("v1alpha1", True, True)]
    assert "conversion" not in spec


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.plural)
def test_the_yaml_holds_no_keyword_that_is_refused(kind: Kind) -> None:
    assert not keywords(yaml.safe_load(crd_yaml(kind))) & FORBIDDEN


def nodes(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every named field below, with its path."""
    yield path, node
    inner = node.get("items", node)
    suffix = "[]" if "items" in node else ""
    for name, child in inner.get("properties", {}).items():
        yield from nodes(child, f"{path}{suffix}.{name}")


def keywords(node: Any) -> set[str]:
    if isinstance(node, dict):
        return set(node).union(*(keywords(child) for child in node.values()))
    return set().union(*(keywords(child) for child in node)) if isinstance(node, list) else set()
