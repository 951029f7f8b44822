# SPDX-License-Identifier: Apache-2.0
"""The chart as helm renders it, without a cluster."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from cluster.binaries import binary

CHART = Path(__file__).parents[2] / "charts" / "headway"
RELEASE = "headway"
NAMESPACE = "headway-system"

Manifest = dict[str, Any]


def render(*sets: str, values: Manifest | None = None, chart: Path = CHART) -> list[Manifest]:
    """Every object of the release; each of `sets` is a KEY=JSON for helm's --set-json."""
    done = template(*sets, values=values, chart=chart)
    assert done.returncode == 0, done.stderr
    documents = yaml.load_all(done.stdout, Loader=yaml.CSafeLoader)
    return [document for document in documents if document]


def refusal(*sets: str, values: Manifest | None = None) -> str:
    """What helm says when it refuses these values."""
    done = template(*sets, values=values)
    assert done.returncode != 0, f"helm took {sets} {values}"
    return done.stderr


def template(
    *sets: str, values: Manifest | None = None, chart: Path = CHART
) -> "subprocess.CompletedProcess[str]":
    command = [str(binary("helm")), "template", RELEASE, str(chart), "--namespace", NAMESPACE]
    command += [word for pair in sets for word in ("--set-json", pair)]
    command += ["--values", "-"] if values is not None else []
    document = None if values is None else yaml.safe_dump(values)
    return subprocess.run(command, input=document, capture_output=True, text=True, check=False)


def of_kind(objects: list[Manifest], kind: str) -> dict[str, Manifest]:
    return {held["metadata"]["name"]: held for held in objects if held["kind"] == kind}


def containers(objects: list[Manifest]) -> dict[str, Manifest]:
    """The one container of each Deployment, by the Deployment's name."""
    found = {}
    for name, deployment in of_kind(objects, "Deployment").items():
        (found[name],) = deployment["spec"]["template"]["spec"]["containers"]
    return found


def rules(role: Manifest) -> Iterator[tuple[str, str, frozenset[str]]]:
    """(group, resource, verbs) of each resource of a role."""
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                yield group, resource, frozenset(rule["verbs"])
