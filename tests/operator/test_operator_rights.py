# SPDX-License-Identifier: Apache-2.0
"""The table of permissions is exactly what the operator uses, no more.

That it is enough shows in every other test: the operator runs with these rights alone.
"""

import kopf

from headway_operator import handlers
from headway_operator.kube import DEPLOYMENTS, NETWORKPOLICIES, PODS, WORKLOADCLASSES
from headway_operator.permissions import PERMISSIONS
from headway_operator.resources import CHILDREN
from tests.operator.running_operator import RunningOperator
from tests.operator.world import World

KOPF_ALONE = {"namespaces", "customresourcedefinitions"}
NEVER_CALLED = {("update", "inferencepools/finalizers")}
"""Checked by an admission plugin when an owner reference is set."""


async def test_every_right_is_used(running_operator: RunningOperator, world: World) -> None:
    """A life with everything in it; `create` of a kind that is applied shows as its `patch`."""
    await world.create_pool()
    await world.serve()
    await world.api.delete(DEPLOYMENTS, await world.get(DEPLOYMENTS, "chat"))
    await world.exists(DEPLOYMENTS, "chat")
    await world.api.merge(DEPLOYMENTS, "chat", world.namespace, {"spec": {"replicas": 9}})
    await world.patch_pool(access={"networkPolicy": "Open"})

    async def gone() -> bool:
        return await world.find(NETWORKPOLICIES, "chat") is None

    await world.eventually(gone, "the NetworkPolicy to go")
    running_operator.resync()
    await running_operator.idle(world.namespace)

    applied = {resource.plural for resource in (*CHILDREN, WORKLOADCLASSES)}
    granted = {
        (verb, row.resource)
        for row in PERMISSIONS
        if row.resource not in KOPF_ALONE
        for verb in row.verbs
        if verb != "watch" and not (verb == "create" and row.resource in applied)
    }
    assert set(running_operator.requests) == granted - NEVER_CALLED


def test_what_is_watched_is_what_the_handlers_are_for() -> None:
    watched = {row.resource for row in PERMISSIONS if "watch" in row.verbs}
    handled = {
        handler.selector.any_name
        for handler in handlers.REGISTRY._watching.get_all_handlers()
        if handler.selector
    }
    assert watched == handled | KOPF_ALONE


def test_only_the_operators_own_children_are_watched() -> None:
    settings = kopf.OperatorSettings()
    handlers.configure(settings)
    for resource in (*CHILDREN, PODS):
        watched = kopf.Resource(
            resource.group, resource.version, resource.plural, namespaced=True, preferred=True
        )
        assert settings.watching.label_selectors.collect(watched) == [
            "app.kubernetes.io/managed-by=headway-operator"
        ]


def test_no_right_reaches_beyond_pools() -> None:
    forbidden = {"secrets", "roles", "clusterroles", "nodes", "*"}
    assert not {row.resource for row in PERMISSIONS} & forbidden
    assert not {verb for row in PERMISSIONS for verb in row.verbs} & {"*", "escalate", "bind"}
