# SPDX-License-Identifier: Apache-2.0
"""Says which parts of the cluster run, and whether its node takes pods."""

from . import addresses, devices
from .failure import ClusterError
from .kubectl import get
from .lifecycle import PARTS, is_node_ready, is_running
from .state import State


def show(state: State) -> bool:
    """Prints the table; True when the whole cluster works."""
    known = state.processes()
    for name in PARTS:
        alive = name in known and known[name].alive()
        print(
            f"  {name:<26}{'running' if alive else 'stopped':<10}{known[name].pid if alive else ''}"
        )
    if not is_running(state):
        print("  the cluster is down: start it with `python -m cluster up`")
        return False
    try:
        node = get(state.kubeconfig, "node", addresses.NODE_NAME)
        ready = is_node_ready(state)
    except ClusterError as error:
        print(f"  the API server does not answer: {error}")
        return False
    version = node["status"]["nodeInfo"]["kubeletVersion"]
    answer = "Ready" if ready else "NotReady"
    print(f"  node {addresses.NODE_NAME:<21}{answer:<10}{version}, {devices.gpus(node)} fake GPUs")
    print(f"  kubeconfig                {state.kubeconfig}")
    return ready
