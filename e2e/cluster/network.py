# SPDX-License-Identifier: Apache-2.0
"""The pods' network: a bridge with the node's address on it, and the CNI plugins that use it."""

import json
import subprocess
from pathlib import Path

from . import addresses, rules
from .failure import ClusterError
from .state import State

FORWARDING = ("net.ipv4.ip_forward", "net.bridge.bridge-nf-call-iptables")


def refuse_taken_network() -> None:
    """Another cluster on this machine, or a VPN on the same addresses, would share its packets."""
    strangers = rules.cluster_rules()
    if strangers:
        raise ClusterError(
            f"another Kubernetes works on this machine (its packet filter has {strangers[0]}): "
            f"set KUBECONFIG to use that one, or end it and its rules"
        )
    listed = subprocess.run(
        ["ip", "-json", "route", "show", "root", addresses.POD_NETWORK],
        capture_output=True,
        text=True,
        check=True,
    )
    for route in json.loads(listed.stdout or "[]"):
        raise ClusterError(
            f"{addresses.POD_NETWORK} is in use here already (by {route.get('dev', '?')}): "
            f"end that network, or set KUBECONFIG to the cluster that it belongs to"
        )


def create_bridge(state: State) -> None:
    """The CNI plugin would make it with the first pod; the node needs its address before that."""
    address = f"{addresses.NODE_ADDRESS}/{addresses.NODE_PREFIX}"
    for arguments in (
        ("link", "add", addresses.BRIDGE, "type", "bridge"),
        ("address", "add", address, "dev", addresses.BRIDGE),
        ("link", "set", addresses.BRIDGE, "up"),
    ):
        done = subprocess.run(("ip", *arguments), capture_output=True, text=True)
        if done.returncode != 0:
            raise ClusterError(f"`ip {' '.join(arguments)}`: {done.stderr.strip()}")
    _forward_packets()
    _write_cni_config(state)


def _forward_packets() -> None:
    subprocess.run(["modprobe", "-q", "br_netfilter"], capture_output=True)
    for name in FORWARDING:
        path = Path("/proc/sys") / name.replace(".", "/")
        if not path.exists():
            raise ClusterError(f"the kernel has no {name}: load its module br_netfilter")
        path.write_text("1\n")


def _write_cni_config(state: State) -> None:
    folder = state.root / "cni" / "conf"
    folder.mkdir(parents=True)
    bridge = {
        "type": "bridge",
        "bridge": addresses.BRIDGE,
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(state.root / "cni" / "leases"),
            "ranges": [[{"subnet": addresses.POD_NETWORK, "gateway": addresses.NODE_ADDRESS}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    config = {"cniVersion": "1.0.0", "name": addresses.NETWORK_NAME, "plugins": [bridge, ports]}
    (folder / "10-headway.conflist").write_text(json.dumps(config, indent=2))
