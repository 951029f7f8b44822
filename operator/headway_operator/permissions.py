# SPDX-License-Identifier: Apache-2.0
"""Every right the operator needs, each with its reason: the chart's ClusterRole is exactly this.

No secrets, no roles, no nodes, no wildcard; nothing that would let a pool reach another namespace.
"""

from dataclasses import dataclass

from headway_api.names import GROUP

READ = ("get", "list", "watch")
APPLY = ("get", "list", "watch", "create", "patch")
"""Server-side apply is a patch, and a create as well where the object does not exist."""


@dataclass(frozen=True, slots=True)
class Permission:
    group: str
    resource: str
    verbs: tuple[str, ...]
    reason: str


PERMISSIONS = (
    Permission(GROUP, "inferencepools", READ, "The pools to carry out."),
    Permission(GROUP, "inferencepools/status", ("patch",), "Report, by server-side apply."),
    Permission(
        GROUP,
        "inferencepools/finalizers",
        ("update",),
        "Owner references that block deletion, where that is enforced.",
    ),
    Permission(
        GROUP,
        "workloadclasses",
        APPLY,
        "Classes pools inherit from; the built-in ones are created when absent.",
    ),
    Permission("", "configmaps", APPLY, "Runtime files of pools."),
    Permission("", "serviceaccounts", APPLY, "Identities of pools' pods."),
    Permission("", "services", APPLY, "Where clients reach pools."),
    Permission("", "pods", ("list", "watch", "patch"), "Why a replica fails; runtime revision."),
    Permission("", "events", ("get", "create", "patch"), "Events about pools."),
    Permission("", "namespaces", ("list", "watch"), "Namespaces that come and go (kopf)."),
    Permission("apps", "deployments", APPLY, "Servers of pools."),
    Permission(
        "networking.k8s.io",
        "networkpolicies",
        (*APPLY, "delete"),
        "Isolation of pools' pods; gone when a pool is opened.",
    ),
    Permission(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        ("list", "watch"),
        "Kinds that are installed after the operator (kopf).",
    ),
)
