# SPDX-License-Identifier: Apache-2.0
"""The children of a pool, one pure builder per kind.

Everything here is a function from a pool to plain manifests. No clock, no I/O, no order that
depends on anything but the input: building twice gives the same bytes.
"""

from dataclasses import dataclass

from headway_api.runtime import RuntimeFile
from headway_operator.build.configmap import build_configmap
from headway_operator.build.deployment import build_deployment
from headway_operator.build.networkpolicy import build_networkpolicy
from headway_operator.build.service import build_service
from headway_operator.build.serviceaccount import build_serviceaccount
from headway_operator.pool import Pool
from headway_operator.resources import (
    CONFIGMAPS,
    DEPLOYMENTS,
    NETWORKPOLICIES,
    SERVICEACCOUNTS,
    SERVICES,
    Manifest,
    Resource,
)


@dataclass(frozen=True, slots=True)
class Child:
    resource: Resource
    manifest: Manifest

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])


def build_children(
    pool: Pool, *, image: str, runtime: RuntimeFile, release_namespace: str
) -> list[Child]:
    """In the order they are applied. InvalidSpec where the spec cannot be carried out."""
    children = [
        Child(CONFIGMAPS, build_configmap(pool, image, runtime)),
        Child(SERVICEACCOUNTS, build_serviceaccount(pool, image)),
    ]
    if pool.spec.access.network_policy != "Open":
        policy = build_networkpolicy(pool, image, release_namespace)
        children.append(Child(NETWORKPOLICIES, policy))
    return [
        *children,
        Child(DEPLOYMENTS, build_deployment(pool, image)),
        Child(SERVICES, build_service(pool, image)),
    ]
