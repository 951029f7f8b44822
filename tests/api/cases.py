# SPDX-License-Identifier: Apache-2.0
"""Reads the tables of good and bad objects; a row stands for a field, a rule or a list."""

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from headway_api.names import API_VERSION

Manifest = dict[str, Any]

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
MAP_KEY = "zone"

SMALLEST: Mapping[str, Manifest] = {
    "InferencePool": {"spec": {"model": {"name": "org/model"}}},
    "WorkloadClass": {"spec": {}},
    "TenantPolicy": {"spec": {"namespaceSelector": {"matchLabels": {"tenant": "a"}}}},
}
SHAPES: Mapping[str, tuple[list[Any], list[Any]]] = {
    "timestamp": (["2026-01-02T03:04:05Z"], ["yesterday", "2026-01-02", 7]),
    "label": (["a", "a-1", "a" * 63], ["", "A", "-a", "a-", "a.b", "a" * 64, 7]),
    "subdomain": (["a", "a.b-1", "a" * 253], ["", "A", ".a", "a/b", "a" * 254, 7]),
    "model name": (
        ["SmolLM2-135M-Instruct", "meta-llama/Llama-3.1-8B-Instruct", "a/b_c/d.e", "a" * 253],
        ["", "/a", "a/", "a//b", "../a", "a/../b", "a/.b", "a b", "a" * 254, 7],
    ),
    "quantity": (
        [4, "4", "0.5", "500m", "16Gi", "1T"],
        [-1, 1.5, "", "-1", "16GB", "16 Gi", "four", "1" * 33, {}],
    ),
    "count or percent": ([1, 5, "1%", "25%", "100%"], [-1, 1.5, "", "1", "101%", "-1%", "all"]),
    "int64": ([-(2**63), 2**63 - 1], ["7", 1.5]),
    "required": ([], []),
}


@dataclass(frozen=True)
class FieldRow:
    kind: str
    path: str
    given: Mapping[str, Any]
    accept: list[Any]
    refuse: list[Any] = field(default_factory=list)
    required: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {self.path}"

    @property
    def of_status(self) -> bool:
        return self.path.startswith("status")

    @property
    def location(self) -> str:
        """The field as the API server names it."""
        return self.path.replace("[]", "[0]").replace("*", MAP_KEY)

    def holding(self, value: Any) -> Manifest:
        return manifest(self.kind, {**self.given, self.location: value})

    def lacking(self) -> Manifest:
        """The object whose parent of the field exists and lacks the field alone."""
        present = manifest(self.kind, {**self.given, self.location: (self.accept or [{}])[0]})
        parent, leaf = self.location.rsplit(".", 1)
        del resolve(present, parent)[leaf]
        return present


@dataclass(frozen=True)
class RuleRow:
    kind: str
    at: str
    says: str
    accept: list[Mapping[str, Any]]
    refuse: list[Mapping[str, Any]]

    def __str__(self) -> str:
        return f"{self.kind} {self.at}: {self.says}"


@dataclass(frozen=True)
class DuplicateRow:
    kind: str
    at: str
    items: list[Any]
    given: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.kind} {self.at}"

    def repeated(self) -> Manifest:
        return manifest(self.kind, {**self.given, self.at.rpartition("[")[0]: self.items})


def field_rows() -> list[FieldRow]:
    return list(_field_rows())


def _field_rows() -> Iterator[FieldRow]:
    for section in _load("fields.yaml"):
        kinds = section["kind"] if isinstance(section["kind"], list) else [section["kind"]]
        for kind in kinds:
            for name, constraint in section["fields"].items():
                given = section.get("given", {})
                yield _field_row(kind, f"{section['under']}.{name}", given, constraint)


def rule_rows() -> list[RuleRow]:
    return [RuleRow(**row) for row in _load("rules.yaml")]


def duplicate_rows() -> list[DuplicateRow]:
    return [DuplicateRow(**{"given": {}, **row}) for row in _load("duplicates.yaml")]


def manifest(kind: str, values: Mapping[str, Any]) -> Manifest:
    """The smallest object of the kind, changed at these paths, such as `spec.workloads[0].name`."""
    made: Manifest = {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": "probe"},
        **copy.deepcopy(SMALLEST[kind]),
    }
    for path, value in values.items():
        parent, leaf = _steps(path)[:-1], _steps(path)[-1]
        holder: Any = made
        for step, following in zip(parent, [*parent[1:], leaf], strict=True):
            holder = _enter(holder, step, [] if isinstance(following, int) else {})
        _enter(holder, leaf, None)
        holder[leaf] = copy.deepcopy(value)
    return made


def resolve(value: Any, path: str) -> Any:
    for step in _steps(path):
        value = value[step]
    return value


def _enter(holder: Any, step: str | int, empty: Any) -> Any:
    if isinstance(step, int):
        while len(holder) <= step:
            holder.append(empty)
    else:
        holder.setdefault(step, empty)
    return holder[step]


def _steps(path: str) -> list[str | int]:
    found = re.findall(r"([^.\[\]]+)|\[(\d+)\]", path)
    return [int(index) if index else name for name, index in found]


def _load(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / name).read_text())
    return rows


def _field_row(kind: str, path: str, given: Mapping[str, Any], constraint: Any) -> FieldRow:
    if isinstance(constraint, str):
        required = constraint.startswith("required")
        shape = constraint if constraint == "required" else constraint.removeprefix("required ")
        return FieldRow(kind, path, given, *_values(shape), required)
    if "items" in constraint:
        return FieldRow(kind, path, given, *_lists(constraint))
    return FieldRow(kind, path, given, **constraint)


def _values(shape: str) -> tuple[list[Any], list[Any]]:
    """Values at both ends of what the shape takes, and the nearest ones beyond."""
    if shape in SHAPES:
        return SHAPES[shape]
    if shape.startswith("one of "):
        choices = [int(c) if c.isdigit() else c for c in shape.split()[2:]]
        return choices, ["Nonsense", 7, str(choices[0]).lower() + "x"]
    if shape.startswith("text "):
        return _texts(*_ends(shape.removeprefix("text ")))
    if shape.startswith("keys "):
        most = int(shape.removeprefix("keys "))
        return [_labels(0), _labels(most)], [_labels(most + 1)]
    return _integers(shape)


def _integers(shape: str) -> tuple[list[Any], list[Any]]:
    """Beyond an open end nothing is refused: the API server does not enforce int32 itself."""
    low, high = _ends(shape)
    below = [] if shape.startswith("..") else [low - 1]
    above = [] if shape.endswith("..") else [high + 1]
    return [low, high], [*below, *above, "7", 1.5]


def _texts(least: int, most: int) -> tuple[list[Any], list[Any]]:
    accepted = ["x" * max(least, 0), "x" * most]
    return accepted, ["x" * (most + 1), 7, *([""] if least > 0 else [])]


def _labels(count: int) -> dict[str, str]:
    return {f"key-{number}": "value" for number in range(count)}


def _ends(text: str) -> tuple[int, int]:
    low, dots, high = text.partition("..")
    if not dots:
        return 0, int(low)
    return int(low or INT32_MIN), int(high or INT32_MAX)


def _lists(constraint: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    least, most = _ends(constraint["items"])
    items = constraint.get("values") or [
        _numbered(constraint["each"], number) for number in range(most + 1)
    ]
    return [items[:least], items[:most]], [items[: most + 1], *([[]] if least else []), "text"]


def _numbered(template: Any, number: int) -> Any:
    if isinstance(template, str):
        return template.replace("#", str(number))
    if isinstance(template, dict):
        return {key: _numbered(value, number) for key, value in template.items()}
    return template
