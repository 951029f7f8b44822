# SPDX-License-Identifier: Apache-2.0
"""The programs of the one node: kubelet, kube-proxy and the enforcement of NetworkPolicy."""

import json
from pathlib import Path
from typing import Any

from . import addresses
from .binaries import binary
from .certificates import Authority
from .controlplane import FEATURE_GATES
from .leftovers import CGROUP
from .processes import Program
from .state import State

MAX_PODS = 250


def write_credentials(authority: Authority, state: State, server: str) -> None:
    hosts = (addresses.NODE_NAME, addresses.NODE_ADDRESS)
    authority.issue("kubelet", f"system:node:{addresses.NODE_NAME}", "system:nodes", hosts)
    authority.issue("kube-proxy", "system:kube-proxy")
    # It reads pods, namespaces, policies and nodes; no built-in role holds just these.
    authority.issue("kube-router", "kube-router", "system:masters")
    for name in ("kubelet", "kube-proxy", "kube-router"):
        authority.kubeconfig(_kubeconfig(state, name), name, server)


def kubelet(state: State) -> Program:
    gate, _, value = FEATURE_GATES.partition("=")
    resolvers = state.root / "config" / "resolv.conf"
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": addresses.NODE_ADDRESS,
        "port": addresses.KUBELET_PORT,
        "healthzBindAddress": "127.0.0.1",
        "tlsCertFile": str(state.pki / "kubelet.crt"),
        "tlsPrivateKeyFile": str(state.pki / "kubelet.key"),
        "authentication": {"x509": {"clientCAFile": str(state.pki / "ca.crt")}},
        "containerRuntimeEndpoint": f"unix://{state.containerd_socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{CGROUP}",
        "podLogsDir": str(state.logs / "pods"),
        "volumePluginDir": str(state.root / "kubelet" / "volume-plugins"),
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "maxPods": MAX_PODS,
        "clusterDNS": [addresses.DNS_SERVICE],
        "clusterDomain": addresses.DNS_DOMAIN,
        "resolvConf": str(resolvers),
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%"},
        # Imported images cannot be pulled again, so none may be collected.
        "imageGCHighThresholdPercent": 100,
        "featureGates": {gate: value == "true"},
    }
    return Program(
        "kubelet",
        (
            str(binary("kubelet")),
            f"--config={_write(state, 'kubelet', config)}",
            f"--kubeconfig={_kubeconfig(state, 'kubelet')}",
            f"--hostname-override={addresses.NODE_NAME}",
            f"--node-ip={addresses.NODE_ADDRESS}",
            f"--root-dir={state.root / 'kubelet'}",
            "--v=1",
        ),
        state.root,
    )


def kube_proxy(state: State) -> Program:
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(_kubeconfig(state, "kube-proxy"))},
        "clusterCIDR": addresses.POD_NETWORK,
        "hostnameOverride": addresses.NODE_NAME,
        "nodePortAddresses": ["primary"],
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "oomScoreAdj": 0,
        # The host's connection tracking stays as its owner set it.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }
    command = (
        str(binary("kube-proxy")),
        f"--config={_write(state, 'kube-proxy', config)}",
        "--v=1",
    )
    return Program("kube-proxy", command, state.root)


def kube_router(state: State) -> Program:
    return Program(
        "kube-router",
        (
            str(binary("kube-router")),
            f"--kubeconfig={_kubeconfig(state, 'kube-router')}",
            f"--hostname-override={addresses.NODE_NAME}",
            f"--service-cluster-ip-range={addresses.SERVICE_NETWORK}",
            "--run-firewall=true",
            "--run-router=false",
            "--run-service-proxy=false",
            "--run-loadbalancer=false",
            "--enable-cni=false",
            "--health-port=0",
            "--v=1",
        ),
        state.root,
    )


def _kubeconfig(state: State, name: str) -> Path:
    return state.pki / f"{name}.kubeconfig"


def _write(state: State, name: str, config: dict[str, Any]) -> Path:
    path = state.root / "config" / f"{name}.json"
    path.write_text(json.dumps(config, indent=2))
    return path
