# SPDX-License-Identifier: Apache-2.0
"""The NetworkPolicy around a pool's pods.

Clients of the pool's namespace and the listed ones reach the HTTP port, the release's namespace
reaches the metrics port, and pods reach DNS and, while weights come from the hub, public HTTPS.
"""

from headway_api.access import AllowedClient
from headway_api.names import HTTP_PORT, METRICS_PORT
from headway_operator.build.metadata import metadata, sealed, selector
from headway_operator.pool import InvalidSpec, Pool
from headway_operator.resources import NETWORKPOLICIES, Manifest, Manifests

NAMESPACE_LABEL = "kubernetes.io/metadata.name"
DNS_NAMESPACE = "kube-system"
DNS_LABELS = {"k8s-app": "kube-dns"}
PRIVATE_IPV4 = ["10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"]
PRIVATE_IPV6 = ["fc00::/7", "fe80::/10"]


def build_networkpolicy(pool: Pool, image: str, release_namespace: str) -> Manifest:
    return sealed(
        NETWORKPOLICIES,
        {
            "metadata": metadata(pool, pool.name, image),
            "spec": {
                "podSelector": {"matchLabels": selector(pool)},
                "policyTypes": ["Ingress", "Egress"],
                "ingress": _ingress(pool, release_namespace),
                "egress": _egress(pool),
            },
        },
    )


def _ingress(pool: Pool, release_namespace: str) -> Manifests:
    clients: Manifests = [{"podSelector": {}}]
    for index, client in enumerate(pool.spec.access.allowed_clients or []):
        clients.append(_peer(client, f"access.allowedClients.{index}"))
    scraper = {"namespaceSelector": {"matchLabels": {NAMESPACE_LABEL: release_namespace}}}
    return [
        {"from": clients, "ports": [{"protocol": "TCP", "port": HTTP_PORT}]},
        {"from": [scraper], "ports": [{"protocol": "TCP", "port": METRICS_PORT}]},
    ]


def _peer(client: AllowedClient, field: str) -> Manifest:
    """An empty selector selects everything, which nobody writes on purpose to let a client in."""
    peer: Manifest = client.model_dump(mode="json", by_alias=True, exclude_none=True)
    if not peer or not all(selector and any(selector.values()) for selector in peer.values()):
        raise InvalidSpec(
            f"{field}: an empty selector would let everybody in; name labels, or set"
            " access.networkPolicy: Open"
        )
    return peer


def _egress(pool: Pool) -> Manifests:
    dns = {
        "to": [
            {
                "namespaceSelector": {"matchLabels": {NAMESPACE_LABEL: DNS_NAMESPACE}},
                "podSelector": {"matchLabels": DNS_LABELS},
            }
        ],
        "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}],
    }
    if pool.spec.model.source != "HuggingFace":
        return [dns]
    hub = {
        "to": [
            {"ipBlock": {"cidr": "0.0.0.0/0", "except": PRIVATE_IPV4}},
            {"ipBlock": {"cidr": "::/0", "except": PRIVATE_IPV6}},
        ],
        "ports": [{"protocol": "TCP", "port": 443}],
    }
    return [dns, hub]
