# SPDX-License-Identifier: Apache-2.0
"""The kinds the operator reaches, as a fixed table: nothing has to be discovered at run time."""

from dataclasses import dataclass
from typing import Any

from headway_api import names

Manifest = dict[str, Any]
Manifests = list[Manifest]


@dataclass(frozen=True, slots=True)
class Resource:
    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"


INFERENCEPOOLS = Resource(names.GROUP, names.VERSION, names.INFERENCEPOOLS, names.INFERENCE_POOL)
WORKLOADCLASSES = Resource(names.GROUP, names.VERSION, names.WORKLOADCLASSES, names.WORKLOAD_CLASS)
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
SERVICEACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
SERVICES = Resource("", "v1", "services", "Service")
PODS = Resource("", "v1", "pods", "Pod")
EVENTS = Resource("", "v1", "events", "Event")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
NETWORKPOLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")

CHILDREN = (CONFIGMAPS, SERVICEACCOUNTS, NETWORKPOLICIES, DEPLOYMENTS, SERVICES)
"""Kinds of a pool's children in the order they are applied: no pod before its network policy."""
