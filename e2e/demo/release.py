# SPDX-License-Identifier: Apache-2.0
"""The ground the demo stands on: a cluster, the images in it, and the chart's release."""

import subprocess
import sys
import tempfile
from pathlib import Path

import cluster
from cluster.access import foreign_kubeconfig
from cluster.state import state
from demo.kubectl import CommandError, Tools
from demo.stages import say
from image_sources import IMAGES

ROOT = Path(__file__).parents[2]
RELEASE = "headway"
NAMESPACE = "headway-system"
DEMO_NAMESPACE = "default"


class SetupError(Exception):
    """A part of the set-up failed; its own words are already on the terminal."""


def cluster_up() -> None:
    _run_module("cluster", "up")


def build_and_load_images() -> None:
    """A cluster of the user's takes images in by its own means, so it is told which it needs."""
    _run_module("images", "build")
    if not _is_foreign():
        _run_module("images", "load")
        return
    say("    this cluster must hold these images already, or be able to pull them:")
    for image in IMAGES.values():
        say(f"      {image.reference()}")


def tools() -> Tools:
    """kubectl and helm, once the cluster is up."""
    return Tools(
        binaries=Path(_output_of("cluster", "bin").strip()),
        kubeconfig=cluster.kubeconfig(),
        namespace=DEMO_NAMESPACE,
    )


def install() -> Tools:
    """Install or upgrade the release with the images just built; returns when it is ready."""
    here = tools()
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as values:
        values.write(_output_of("images", "values"))
        values.flush()
        here.run(
            "helm", "upgrade", "--install", RELEASE, str(ROOT / "charts" / "headway"),
            "--namespace", NAMESPACE, "--create-namespace",
            "--values", values.name, "--wait", "--timeout", "5m",
        )  # fmt: skip
    return here


def remove(*, keep_cluster: bool) -> None:
    """Delete the pools and the release, then the cluster where it is our own."""
    if _cluster_is_up():
        here = tools()
        for command in (
            ("kubectl", "delete", "inferencepools.serving.headway.dev", "-A", "--all"),
            ("helm", "uninstall", RELEASE, "--namespace", NAMESPACE, "--wait"),
        ):
            try:
                here.run(*command)
            except CommandError as fault:
                print(f"demo: {fault}", file=sys.stderr)
    if not keep_cluster and not _is_foreign():
        _run_module("cluster", "down")


def _is_foreign() -> bool:
    """Whether KUBECONFIG names a cluster that is not this machine's own."""
    return foreign_kubeconfig(state()) is not None


def _cluster_is_up() -> bool:
    return _is_foreign() or _module("cluster", "status", stdout=subprocess.DEVNULL).returncode == 0


def _run_module(*command: str) -> None:
    if _module(*command).returncode:
        raise SetupError(f"`python -m {' '.join(command)}` failed; see its last lines above")


def _output_of(*command: str) -> str:
    finished = _module(*command, stdout=subprocess.PIPE)
    if finished.returncode:
        raise SetupError(f"`python -m {' '.join(command)}` failed; see its last lines above")
    return finished.stdout


def _module(*command: str, stdout: int | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT / "e2e", stdout=stdout, text=True, check=False
    )
