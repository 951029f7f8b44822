# SPDX-License-Identifier: Apache-2.0
"""The release carries the generated kinds, and uninstalling it keeps them and every pool."""

from pathlib import Path

import yaml

from tests.chart.helm import CHART, Manifest, of_kind, render

GENERATED = Path(__file__).parents[2] / "crds"
KEEP = {"helm.sh/resource-policy": "keep"}


def generated() -> dict[str, Manifest]:
    documents = [yaml.safe_load(path.read_text()) for path in GENERATED.glob("*.yaml")]
    return {document["metadata"]["name"]: document for document in documents}


def test_the_release_carries_exactly_the_generated_kinds(objects: list[Manifest]) -> None:
    rendered = of_kind(objects, "CustomResourceDefinition")
    for crd in rendered.values():
        assert crd["metadata"].pop("annotations") == KEEP
    assert rendered == generated()
    assert len(rendered) == 3


def test_they_are_not_where_helm_never_upgrades_them() -> None:
    assert not (CHART / "crds").exists()


def test_keeping_and_installing_them_are_switches() -> None:
    unkept = of_kind(render("crds.keep=false"), "CustomResourceDefinition")
    assert unkept == generated()
    assert of_kind(render("crds.install=false"), "CustomResourceDefinition") == {}
