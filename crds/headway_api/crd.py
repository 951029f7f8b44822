# SPDX-License-Identifier: Apache-2.0
"""Builds the CustomResourceDefinition manifest of a kind."""

from dataclasses import dataclass
from typing import Any, Literal

from headway_api.api_model import ApiModel, Rule
from headway_api.names import GROUP, VERSION
from headway_api.structural import Schema, structural_schema

CATEGORY = "headway"


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`; priority 1 shows it with `-o wide` only."""

    name: str
    type: Literal["string", "integer", "date"]
    json_path: str
    priority: int = 0


@dataclass(frozen=True)
class Kind:
    name: str
    plural: str
    short_name: str
    scope: Literal["Namespaced", "Cluster"]
    description: str
    spec: type[ApiModel]
    status: type[ApiModel]
    columns: tuple[Column, ...]
    rules: tuple[Rule, ...] = ()
    selectable_fields: tuple[str, ...] = ()
    scalable: bool = False

    @property
    def file_name(self) -> str:
        return f"{GROUP}_{self.plural}.yaml"


def crd_manifest(kind: Kind) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": [kind.short_name],
                "categories": [CATEGORY],
            },
            "scope": kind.scope,
            "versions": [_version(kind)],
        },
    }


def _version(kind: Kind) -> dict[str, Any]:
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [_printer_column(column) for column in kind.columns],
        "subresources": _subresources(kind),
        "schema": {"openAPIV3Schema": _root_schema(kind)},
    }
    if kind.selectable_fields:
        version["selectableFields"] = [{"jsonPath": path} for path in kind.selectable_fields]
    return version


def _printer_column(column: Column) -> dict[str, Any]:
    printed: dict[str, Any] = {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.json_path,
    }
    return printed | ({"priority": column.priority} if column.priority else {})


def _subresources(kind: Kind) -> dict[str, Any]:
    if not kind.scalable:
        return {"status": {}}
    return {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }


def _root_schema(kind: Kind) -> Schema:
    schema: Schema = {
        "type": "object",
        "description": kind.description,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": structural_schema(kind.spec),
            "status": structural_schema(kind.status),
        },
    }
    if kind.rules:
        schema["x-kubernetes-validations"] = [
            {"rule": rule.rule, "message": rule.message} for rule in kind.rules
        ]
    return schema
