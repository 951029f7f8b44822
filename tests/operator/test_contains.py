# SPDX-License-Identifier: Apache-2.0
"""Containment: what the API server adds is ignored, what somebody changed is seen."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway_operator.contains import contains

CONTAINED: list[tuple[str, Any, Any]] = [
    ("defaults", {"a": 1, "protocol": "TCP"}, {"a": 1}),
    ("nested", {"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}),
    ("cpu", {"limits": {"cpu": "1"}}, {"limits": {"cpu": "1000m"}}),
    ("memory", {"requests": {"memory": "1Gi"}}, {"requests": {"memory": "1024Mi"}}),
    ("number", {"limits": {"cpu": "4"}}, {"limits": {"cpu": 4}}),
    ("size", {"sizeLimit": "1Gi"}, {"sizeLimit": "1073741824"}),
    (
        "items by merge key",
        {"env": [{"name": "INJECTED"}, {"name": "B", "value": "2"}, {"name": "A", "value": "1"}]},
        {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
    ),
    (
        "container ports",
        {"ports": [{"containerPort": 8000, "protocol": "TCP"}]},
        {"ports": [{"containerPort": 8000}]},
    ),
    ("lists without key", {"args": ["a", "b"]}, {"args": ["a", "b"]}),
    ("empty", {"emptyDir": {}}, {"emptyDir": {}}),
]

MISSING: list[tuple[str, Any, Any]] = [
    ("value", {"a": 2}, {"a": 1}),
    ("key", {}, {"a": 1}),
    ("whole object", None, {"a": 1}),
    ("empty for nothing", {}, {"emptyDir": {}}),
    ("boolean is no number", {"a": True}, {"a": 1}),
    ("quantity", {"limits": {"cpu": "2"}}, {"limits": {"cpu": "1"}}),
    ("unit", {"limits": {"memory": "1G"}}, {"limits": {"memory": "1Gi"}}),
    ("quantities elsewhere are text", {"labels": {"a": "1"}}, {"labels": {"a": "1000m"}}),
    ("order of a list without key", {"args": ["b", "a"]}, {"args": ["a", "b"]}),
    ("more of a list without key", {"args": ["a", "b"]}, {"args": ["a"]}),
    ("item", {"env": [{"name": "B"}]}, {"env": [{"name": "A"}]}),
    (
        "a further port in a network policy",
        {"ports": [{"port": 8000}, {"port": 22}]},
        {"ports": [{"port": 8000}]},
    ),
    ("a further peer", {"from": [{"podSelector": {}}, {}]}, {"from": [{"podSelector": {}}]}),
    (
        "another target of a Service",
        {"ports": [{"port": 8000, "targetPort": "ssh"}]},
        {"ports": [{"port": 8000, "targetPort": "http"}]},
    ),
]


@pytest.mark.parametrize(("live", "desired"), [row[1:] for row in CONTAINED], ids=str)
def test_contained(live: Any, desired: Any) -> None:
    assert contains(live, desired)


@pytest.mark.parametrize(("live", "desired"), [row[1:] for row in MISSING], ids=str)
def test_missing(live: Any, desired: Any) -> None:
    assert not contains(live, desired)


scalars = st.one_of(st.booleans(), st.integers(), st.text(max_size=5))
documents = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=12,
)


def defaulted(document: Any) -> Any:
    """As an API server does: further keys at every level."""
    if isinstance(document, dict):
        return {"defaulted-by-server": 1} | {
            key: defaulted(value) for key, value in document.items()
        }
    return [defaulted(item) for item in document] if isinstance(document, list) else document


@given(documents)
def test_what_a_server_makes_of_a_document_contains_it(document: Any) -> None:
    before = copy.deepcopy(document)
    assert contains(defaulted(document), document)
    assert document == before
