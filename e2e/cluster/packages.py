# SPDX-License-Identifier: Apache-2.0
"""Installs what the cluster takes from Debian, and starts none of the services that come along."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .binaries import Report
from .failure import ClusterError

NODE_PACKAGES = (
    "conntrack",
    "containernetworking-plugins",
    "gcc",
    "ipset",
    "iproute2",
    "iptables",
    "kmod",
    "libc6-dev",
    "nftables",
    "runc",
    "util-linux",
)
IMAGE_PACKAGES = ("buildah", "busybox-static", "mmdebstrap", "prometheus", "skopeo")
PACKAGES = (*NODE_PACKAGES, *IMAGE_PACKAGES)

POLICY_FILE = Path("/usr/sbin/policy-rc.d")
POLICY = (
    "#!/bin/sh\n# headway-cluster: no service starts while its packages are installed\nexit 101\n"
)


def require_root() -> None:
    if os.geteuid() != 0:
        raise ClusterError("a cluster needs root for its network and mounts: run this as root")


def install_missing(report: Report) -> None:
    """Installs the packages that are not there yet; says nothing when all are."""
    if shutil.which("apt-get") is None:
        raise ClusterError(
            "this machine has no apt-get: the cluster needs Debian or Ubuntu, "
            "or set KUBECONFIG to a cluster that is already there"
        )
    missing = sorted(set(PACKAGES) - installed(PACKAGES))
    if not missing:
        return
    if os.geteuid() != 0:
        raise ClusterError(
            f"packages are missing, run as root: "
            f"apt-get install --no-install-recommends {' '.join(missing)}"
        )
    report(f"packages: installing {' '.join(missing)}")
    with no_services_start():
        _apt_get("update")
        _apt_get("install", "--yes", "--no-install-recommends", *missing)


def installed(names: tuple[str, ...]) -> set[str]:
    asked = ("dpkg-query", "--show", "--showformat=${db:Status-Status} ${Package}\n", *names)
    # dpkg-query exits 1 when it does not know one of the names, and still lists the others.
    said = subprocess.run(asked, capture_output=True, text=True)
    return parse_installed(said.stdout)


def parse_installed(listing: str) -> set[str]:
    pairs = (line.split() for line in listing.splitlines())
    return {name for state, name in pairs if state == "installed"}


@contextmanager
def no_services_start() -> Iterator[None]:
    """A policy-rc.d of the machine's own is left as it is; ours goes away again."""
    if POLICY_FILE.exists() and POLICY_FILE.read_text() != POLICY:
        yield
        return
    POLICY_FILE.write_text(POLICY)
    POLICY_FILE.chmod(0o755)
    try:
        yield
    finally:
        POLICY_FILE.unlink()


def _apt_get(*arguments: str) -> None:
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        ("apt-get", "--quiet", "--option=DPkg::Lock::Timeout=300", *arguments),
        env=os.environ | quiet,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr)[-2000:].strip()
        raise ClusterError(f"`apt-get {' '.join(arguments)}` failed:\n{said}")
