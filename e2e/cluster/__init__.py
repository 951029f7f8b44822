# SPDX-License-Identifier: Apache-2.0
"""A real single-node Kubernetes on one Linux machine, built from Go modules and Debian packages."""

from .access import kubeconfig
from .failure import ClusterError

__all__ = ["ClusterError", "kubeconfig"]
