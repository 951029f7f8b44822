# SPDX-License-Identifier: Apache-2.0
"""The container runtime: its configuration, its start, and the images taken into it.

All its folders lie in the cluster's state, so that its mounts and network namespaces are known as
the cluster's own.
"""

import fcntl
import json
import os
import subprocess
import tarfile
import time
from pathlib import Path
from typing import IO

from .binaries import Report, binary, module_dir
from .catalogue import MODULES
from .failure import ClusterError
from .images import Image, entries, entry_sizes, read_image
from .processes import Program, search_path
from .state import State

NAMESPACE = "k8s.io"
CNI_PLUGINS = Path("/usr/lib/cni")
REPORT_SECONDS = 10.0
SECONDS = 60.0
PIPE_BYTES = 1 << 20


def containerd(state: State, pause_image: str) -> Program:
    config = state.root / "config" / "containerd.toml"
    config.write_text(_config(state, pause_image))
    # containerd looks for its shim on PATH.
    path = os.pathsep.join((str(module_dir(MODULES["containerd"])), search_path()))
    command = (str(binary("containerd")), f"--config={config}")
    return Program("containerd", command, state.root, {"PATH": path})


def is_serving(state: State) -> bool:
    return state.containerd_socket.exists() and _ctr(state, "version").returncode == 0


def image_digests(state: State) -> dict[str, str]:
    """Name to digest of every image that is there."""
    listed = _ctr(state, "images", "list")
    if listed.returncode != 0:
        raise ClusterError(f"containerd does not list its images: {listed.stderr.strip()}")
    return parse_image_list(listed.stdout)


def parse_image_list(table: str) -> dict[str, str]:
    rows = (line.split() for line in table.splitlines()[1:])
    return {row[0]: row[2] for row in rows if len(row) > 2}


def load(state: State, source: Path, report: Report) -> Image:
    """Takes an OCI archive or folder in, unless the same content is there under its name."""
    image = read_image(source)
    if image_digests(state).get(image.name) == image.digest:
        report(f"{image.name}: already there")
        return image
    started = time.monotonic()
    held = frozenset(_ctr(state, "content", "list", "--quiet").stdout.split())
    command = (*_ctr_command(state), "images", "import", "-")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        if process.stdin is None or process.stderr is None:
            raise ClusterError("ctr was started without pipes")
        try:
            with process.stdin:
                _send(source, held, process.stdin, lambda sent: report(f"{image.name}: {sent}"))
            report(f"{image.name}: unpacking")
        except BrokenPipeError:
            pass
        said = process.stderr.read().decode(errors="replace").strip()
    if process.returncode != 0:
        raise ClusterError(f"containerd did not take {source} in: {said}")
    report(f"{image.name}: loaded in {time.monotonic() - started:.1f} s")
    return image


def forget_containers(state: State) -> bool:
    """Drops the records of an earlier run's pods; True when there were any.

    containerd must be started again after that: it has read them already.
    """
    containers = _ctr(state, "containers", "list", "--quiet").stdout.split()
    sandboxes = [
        line.split()[0] for line in _ctr(state, "sandboxes", "list").stdout.splitlines()[1:]
    ]
    for name in containers:
        _ctr(state, "tasks", "delete", "--force", name)
        _ctr(state, "containers", "delete", name)
    for name in sandboxes:
        _ctr(state, "sandboxes", "remove", "--force", name)
    return bool(containers or sandboxes)


def _send(source: Path, held: frozenset[str], pipe: IO[bytes], progress: Report) -> None:
    """Streams the image as a tar file, without the blobs in `held`, which containerd has."""

    def is_wanted(name: str) -> bool:
        return f"sha256:{Path(name).name}" not in held

    # Linux lets a pipe hold 1 MiB at most, and 64 KiB unless it is asked.
    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    total = sum(size for name, size in entry_sizes(source) if is_wanted(name))
    counted = _Counted(pipe, total, progress)
    with tarfile.open(  # type: ignore[call-overload]
        fileobj=counted, mode="w|", bufsize=PIPE_BYTES, copybufsize=PIPE_BYTES
    ) as stream:
        for entry, content in entries(source):
            if is_wanted(entry.name):
                stream.addfile(entry, content)


class _Counted:
    """Passes bytes on and tells now and then how many of them there were."""

    def __init__(self, pipe: IO[bytes], total: int, progress: Report) -> None:
        self._pipe, self._total, self._progress = pipe, total, progress
        self._sent, self._told = 0, time.monotonic()

    def write(self, content: bytes) -> int:
        self._pipe.write(content)
        self._sent += len(content)
        if time.monotonic() - self._told > REPORT_SECONDS:
            self._told = time.monotonic()
            self._progress(f"{self._sent >> 20} of {self._total >> 20} MiB")
        return len(content)


def _ctr(state: State, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (*_ctr_command(state), *arguments), capture_output=True, text=True, timeout=SECONDS
    )


def _ctr_command(state: State) -> tuple[str, ...]:
    return (str(binary("ctr")), f"--address={state.containerd_socket}", f"--namespace={NAMESPACE}")


def _config(state: State, pause_image: str) -> str:
    """JSON strings are TOML strings as well."""

    def quoted(value: object) -> str:
        return json.dumps(str(value))

    return f"""\
version = 4
root = {quoted(state.content)}
state = {quoted(state.run / "containerd")}
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.internal.v1.opt"]

[debug]
level = "warn"

[plugins."io.containerd.server.v1.grpc"]
address = {quoted(state.containerd_socket)}

[plugins."io.containerd.server.v1.ttrpc"]
address = {quoted(f"{state.containerd_socket}.ttrpc")}

[plugins."io.containerd.shim.v1.manager"]
socket_dir = {quoted(state.run / "s")}

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = {quoted(pause_image)}

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
tolerate_missing_hugetlb_controller = true

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
Root = {quoted(state.run / "runc")}
SystemdCgroup = false

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = [{quoted(CNI_PLUGINS)}]
conf_dir = {quoted(state.root / "cni" / "conf")}
use_internal_loopback = true
"""
