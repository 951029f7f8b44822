# SPDX-License-Identifier: Apache-2.0
"""Nobody gets more than they use: the operator's table, the tuner's few verbs, the users' roles."""

import pytest

from headway_operator.permissions import PERMISSIONS
from tests.chart.helm import Manifest, of_kind, render, rules

CLUSTER_SCOPED = {"workloadclasses", "namespaces", "customresourcedefinitions"}


def test_the_operator_holds_exactly_its_table(objects: list[Manifest]) -> None:
    roles = of_kind(objects, "ClusterRole")
    within = set(rules(roles["headway-operator"]))
    across = set(rules(roles["headway-operator-cluster"]))
    table = {(p.group, p.resource, frozenset(p.verbs)) for p in PERMISSIONS}
    assert within | across == table
    assert {resource for _, resource, _ in across} == CLUSTER_SCOPED


def test_the_tuner_writes_a_pools_status_and_nothing_else(objects: list[Manifest]) -> None:
    roles = of_kind(objects, "ClusterRole")
    held = {*rules(roles["headway-tuner"]), *rules(roles["headway-tuner-cluster"])}
    assert held == {
        ("serving.headway.dev", "inferencepools", frozenset({"list"})),
        ("serving.headway.dev", "inferencepools/status", frozenset({"patch"})),
        ("serving.headway.dev", "workloadclasses", frozenset({"list"})),
        ("", "events", frozenset({"create"})),
    }


def test_no_role_has_a_wildcard_or_reaches_secrets(objects: list[Manifest]) -> None:
    for role in of_kind(objects, "ClusterRole").values():
        for group, resource, verbs in rules(role):
            assert "*" not in (group, resource, *verbs), role["metadata"]["name"]
            assert resource not in {"secrets", "roles", "clusterroles", "nodes", "pods/exec"}
            assert not verbs & {"escalate", "bind", "impersonate"}


@pytest.mark.parametrize(
    ("role", "aggregated_to", "writes"),
    [
        ("headway-pool-viewer", "view", set()),
        ("headway-pool-editor", "edit", {"create", "update", "patch", "delete"}),
        (
            "headway-pool-admin",
            "admin",
            {"create", "update", "patch", "delete", "deletecollection"},
        ),
    ],
)
def test_users_roles_reach_pools_but_not_their_status(
    objects: list[Manifest], role: str, aggregated_to: str, writes: set[str]
) -> None:
    held = of_kind(objects, "ClusterRole")[role]
    labels = held["metadata"]["labels"]
    assert labels[f"rbac.authorization.k8s.io/aggregate-to-{aggregated_to}"] == "true"
    granted = {resource: verbs for _, resource, verbs in rules(held)}
    assert granted["inferencepools"] == {"get", "list", "watch"} | writes
    assert granted.keys() - {"inferencepools", "inferencepools/scale"} == set()
    assert ("inferencepools/scale" in granted) == bool(writes)


def test_policies_are_for_admins_and_classes_readable_by_all(objects: list[Manifest]) -> None:
    roles = of_kind(objects, "ClusterRole")
    admin = roles["headway-policy-admin"]
    assert {resource for _, resource, _ in rules(admin)} == {"tenantpolicies", "workloadclasses"}
    assert not [k for k in admin["metadata"]["labels"] if "aggregate-to" in k]
    binding = of_kind(objects, "ClusterRoleBinding")["headway-class-viewer"]
    assert binding["subjects"][0]["name"] == "system:authenticated"
    assert list(rules(roles["headway-class-viewer"])) == [
        ("serving.headway.dev", "workloadclasses", frozenset({"get", "list", "watch"}))
    ]


def test_watched_namespaces_narrow_the_rights_and_the_watches() -> None:
    objects = render('watchNamespaces=["team-a","team-b"]')
    wide = of_kind(objects, "ClusterRoleBinding")
    assert {"headway-operator", "headway-tuner"} & wide.keys() == set()
    assert {"headway-operator-cluster", "headway-tuner-cluster"} <= wide.keys()
    narrow = {
        (held["metadata"]["namespace"], held["roleRef"]["name"])
        for held in objects
        if held["kind"] == "RoleBinding"
    }
    parts = ("headway-operator", "headway-tuner")
    assert narrow == {(namespace, part) for namespace in ("team-a", "team-b") for part in parts}
    for name in ("headway-operator", "headway-tuner"):
        (container,) = of_kind(objects, "Deployment")[name]["spec"]["template"]["spec"][
            "containers"
        ]
        assert "--watch-namespace=team-a" in container["args"]
        assert "--watch-namespace=team-b" in container["args"]


def test_without_rbac_create_no_role_is_made() -> None:
    kinds = {held["kind"] for held in render("rbac.create=false")}
    assert not kinds & {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
    assert "ServiceAccount" in kinds
