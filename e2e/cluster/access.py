# SPDX-License-Identifier: Apache-2.0
"""Which cluster to use: the one of KUBECONFIG where it is set, else our own."""

import os
from pathlib import Path

from .failure import ClusterError
from .state import State, state


def foreign_kubeconfig(own: State) -> Path | None:
    """The kubeconfig of a cluster that is not ours; None when KUBECONFIG is unset or names ours."""
    configured = os.environ.get("KUBECONFIG")
    if not configured:
        return None
    path = Path(configured)
    if path.absolute() == own.kubeconfig:
        return None
    if not path.is_file():
        raise ClusterError(
            f"KUBECONFIG names {path}, which is not a file: correct it, "
            f"or unset it to use a cluster of this machine's own"
        )
    return path


def kubeconfig() -> Path:
    """What scenarios connect with; says how to get a cluster when there is none."""
    own = state()
    chosen = foreign_kubeconfig(own) or own.kubeconfig
    if not chosen.exists():
        raise ClusterError(
            "no cluster is running: start one with `python -m cluster up`, or set KUBECONFIG"
        )
    return chosen
