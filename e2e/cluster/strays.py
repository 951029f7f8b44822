# SPDX-License-Identifier: Apache-2.0
"""Files that the node's programs insist on keeping outside the cluster's folder."""

import contextlib
import os
from pathlib import Path

from . import addresses
from .state import State

LOG_LINKS = Path("/var/log/containers")
CNI_RESULTS = Path("/var/lib/cni/results")
DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")
DEVICE_FILES = ("kubelet.sock", "kubelet_internal_checkpoint", "DEPRECATION")
# Removed where nothing is left in them, the innermost first.
FOLDERS = (LOG_LINKS, CNI_RESULTS, CNI_RESULTS.parent, DEVICE_PLUGINS, DEVICE_PLUGINS.parent)


def remove(state: State) -> None:
    for link in LOG_LINKS.glob("*.log"):
        if link.is_symlink() and Path(os.readlink(link)).is_relative_to(state.root):
            link.unlink()
    for result in CNI_RESULTS.glob(f"{addresses.NETWORK_NAME}-*"):
        result.unlink()
    for name in DEVICE_FILES:
        (DEVICE_PLUGINS / name).unlink(missing_ok=True)
    for folder in FOLDERS:
        with contextlib.suppress(OSError):
            folder.rmdir()
