# SPDX-License-Identifier: Apache-2.0
"""The cluster's DNS: CoreDNS as a pod with the usual labels, so that policies can name it."""

import re
from ipaddress import ip_address
from pathlib import Path
from string import Template

from . import addresses
from .kubectl import get, kubectl
from .state import State

MANIFEST = Path(__file__).parent / "manifests" / "coredns.yaml"
# systemd-resolved lists the real name servers here, and only itself in /etc/resolv.conf.
RESOLVERS = (Path("/run/systemd/resolve/resolv.conf"), Path("/etc/resolv.conf"))


def write_resolv_conf(state: State) -> None:
    """For pods that ask for the node's DNS; may name no server on a host without any."""
    lines = [f"nameserver {server}\n" for server in _host_servers()]
    (state.root / "config" / "resolv.conf").write_text("".join(lines))


def deploy(kubeconfig: Path, image: str) -> None:
    servers = _host_servers()
    manifest = Template(MANIFEST.read_text()).substitute(
        image=image,
        address=addresses.DNS_SERVICE,
        domain=addresses.DNS_DOMAIN,
        forward=f"forward . {' '.join(servers)}" if servers else "",
    )
    kubectl(kubeconfig, "apply", "--filename=-", stdin=manifest)


def is_ready(kubeconfig: Path) -> bool:
    deployment = get(kubeconfig, "--namespace=kube-system", "deployment", "coredns")
    return bool(deployment["status"].get("readyReplicas"))


def name_servers(resolv_conf: str) -> list[str]:
    """Those that a pod can reach as well: a loopback address means the host alone."""
    found = re.findall(r"^\s*nameserver\s+([0-9a-fA-F.:]+)", resolv_conf, re.MULTILINE)
    return [server for server in found if not ip_address(server).is_loopback]


def _host_servers() -> list[str]:
    for path in RESOLVERS:
        if path.exists() and (servers := name_servers(path.read_text())):
            return servers
    return []
