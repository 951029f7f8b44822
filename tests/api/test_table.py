# SPDX-License-Identifier: Apache-2.0
"""Every constraint of the kinds against a real API server, which must name what it refuses."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from headway_api.crd import Kind, crd_manifest
from headway_api.kinds import KINDS
from headway_api.structural import Schema
from tests.api.cases import (
    DuplicateRow,
    FieldRow,
    Manifest,
    RuleRow,
    duplicate_rows,
    field_rows,
    manifest,
    rule_rows,
)
from tests.api_server import ApiServer

SHOWN = 60
PLURALS = {kind.name: kind.plural for kind in KINDS}


@pytest.fixture(scope="module")
def existing(api_server: ApiServer) -> Iterator[str]:
    """The name of an object of every kind, whose status can be written."""
    for kind in KINDS:
        made = manifest(kind.name, {"metadata.name": "existing"})
        api_server.create(kind.plural, made).raise_for_status()
    yield "existing"
    for kind in KINDS:
        api_server.delete(kind.plural, "existing")


@pytest.mark.parametrize("row", field_rows(), ids=str)
def test_a_field_takes_what_the_table_says_and_nothing_beyond(
    api_server: ApiServer, existing: str, row: FieldRow
) -> None:
    def answer(asked: Manifest) -> httpx.Response:
        if row.of_status:
            change = {"status": asked["status"]}
            return api_server.patch(
                PLURALS[row.kind], existing, change, subresource="status", dry_run=True
            )
        return api_server.create(PLURALS[row.kind], asked, dry_run=True)

    for value in row.accept:
        taken = answer(row.holding(value))
        assert taken.is_success, f"{shown(value)} must be accepted: {message(taken)}"
    for value in row.refuse:
        assert_refused(answer(row.holding(value)), row.location, f"{shown(value)}")
    if row.required:
        assert_refused(answer(row.lacking()), row.location, "an object without it")


@pytest.mark.parametrize("row", rule_rows(), ids=str)
def test_a_rule_between_fields_holds(api_server: ApiServer, row: RuleRow) -> None:
    for values in row.accept:
        taken = api_server.create(PLURALS[row.kind], manifest(row.kind, values), dry_run=True)
        assert taken.is_success, f"{values} must be accepted: {message(taken)}"
    for values in row.refuse:
        answer = api_server.create(PLURALS[row.kind], manifest(row.kind, values), dry_run=True)
        assert_refused(answer, row.at, str(values))
        assert row.says in message(answer)


@pytest.mark.parametrize("row", duplicate_rows(), ids=str)
def test_repeated_items_are_refused(api_server: ApiServer, row: DuplicateRow) -> None:
    answer = api_server.create(PLURALS[row.kind], row.repeated(), dry_run=True)
    assert_refused(answer, row.at, str(row.items))


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("InferencePool", "spec.modle"),
        ("InferencePool", "spec.model.nmae"),
        ("InferencePool", "spec.workloads[0].batching.maxBatchTokens"),
        ("WorkloadClass", "spec.bounds.maxWaitingTokens"),
        ("TenantPolicy", "spec.limits.maxPools"),
    ],
)
def test_an_unknown_field_is_refused_by_name(api_server: ApiServer, kind: str, path: str) -> None:
    answer = api_server.create(PLURALS[kind], manifest(kind, {path: 1}), dry_run=True)
    assert answer.status_code == httpx.codes.BAD_REQUEST
    assert f'unknown field "{path}"' in message(answer)


def test_every_field_has_a_row() -> None:
    rows = {(row.kind, row.path) for row in field_rows()}
    fields = {(kind.name, path) for kind in KINDS for path in constrained(kind)}
    assert fields == rows


def test_every_rule_has_a_row() -> None:
    rows = {(row.kind, row.at, row.says) for row in rule_rows()}
    rules = {(kind.name, *rule) for kind in KINDS for rule in declared_rules(kind)}
    assert rules == rows


def test_every_list_of_distinct_items_has_a_row() -> None:
    rows = {(row.kind, row.at.replace("[1]", "[]")) for row in duplicate_rows()}
    lists = {
        (kind.name, f"{path}[]")
        for kind in KINDS
        for path, node in schema_nodes(kind)
        if path.startswith("spec") and node.get("x-kubernetes-list-type") in {"map", "set"}
    }
    assert lists == {(kind, path.replace("[0]", "[]")) for kind, path in rows}


def constrained(kind: Kind) -> Iterator[str]:
    """Every field that holds a value, and the objects that must be there."""
    for path, node in schema_nodes(kind):
        if node.get("type") != "object" or "additionalProperties" in node:
            yield path
        for name in node.get("required", ()):
            child = node["properties"][name]
            if path and child.get("type") == "object":
                yield f"{path}.{name}"


def declared_rules(kind: Kind) -> Iterator[tuple[str, str]]:
    for rule in kind.rules:
        yield "metadata.name", rule.message
    for path, node in schema_nodes(kind):
        for rule in node.get("x-kubernetes-validations", ()):
            yield path.replace("[]", "[0]"), rule["message"]


def schema_nodes(kind: Kind) -> Iterator[tuple[str, Schema]]:
    schema = crd_manifest(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in ("spec", "status"):
        yield from _nodes(schema["properties"][name], name)


def _nodes(node: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from _nodes(child, f"{path}.{name}")
    if "items" in node:
        yield from _nodes(node["items"], f"{path}[]")
    if "additionalProperties" in node:
        yield from _nodes(node["additionalProperties"], f"{path}.*")


def assert_refused(answer: httpx.Response, field: str, what: str) -> None:
    assert answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY, (
        f"{what} must be refused, the answer was {answer.status_code} {message(answer)}"
    )
    named = {cause.get("field", "") for cause in answer.json()["details"]["causes"]}
    assert field in named or field in message(answer), f"{what}: {message(answer)}"


def message(answer: httpx.Response) -> str:
    return str(answer.json().get("message", answer.text))


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text)} characters)"
