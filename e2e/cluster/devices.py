# SPDX-License-Identifier: Apache-2.0
"""GPUs that are not there: an extended resource on the node, which the real scheduler counts.

A pod that asks for one starts without any device. kubelet keeps the figure through its own status
updates, because no device plugin ever claimed the resource.
"""

import json
from pathlib import Path
from typing import Any

from . import addresses
from .kubectl import get, kubectl

RESOURCE = "nvidia.com/gpu"


def set_gpus(kubeconfig: Path, count: int) -> None:
    if gpus(get(kubeconfig, "node", addresses.NODE_NAME)) == count:
        return
    field = RESOURCE.replace("/", "~1")
    patch = [
        {"op": "add", "path": f"/status/{part}/{field}", "value": str(count)}
        for part in ("capacity", "allocatable")
    ]
    kubectl(
        kubeconfig,
        "patch",
        "node",
        addresses.NODE_NAME,
        "--subresource=status",
        "--type=json",
        f"--patch={json.dumps(patch)}",
    )


def gpus(node: dict[str, Any]) -> int:
    """How many the scheduler may give out on this node."""
    return int(node["status"].get("allocatable", {}).get(RESOURCE, 0))
