# SPDX-License-Identifier: Apache-2.0
"""Runs the kubectl that was built for this cluster; the host's own may be years older."""

import json
import subprocess
from pathlib import Path
from typing import Any

from .binaries import binary
from .failure import ClusterError

TIMEOUT_SECONDS = 120


def kubectl(kubeconfig: Path, *arguments: str, stdin: str | None = None) -> str:
    """What kubectl printed; a ClusterError with its words when it fails."""
    done = subprocess.run(
        (str(binary("kubectl")), f"--kubeconfig={kubeconfig}", *arguments),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    if done.returncode != 0:
        raise ClusterError(f"`kubectl {' '.join(arguments)}`: {done.stderr.strip()}")
    return done.stdout


def get(kubeconfig: Path, *arguments: str) -> Any:
    return json.loads(kubectl(kubeconfig, "get", "--output=json", *arguments))
