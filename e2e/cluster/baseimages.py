# SPDX-License-Identifier: Apache-2.0
"""The two images a cluster cannot start without: the pause program of every pod, and CoreDNS."""

import hashlib
import platform
import subprocess
import tempfile
from pathlib import Path

from .binaries import Report, binary
from .catalogue import MODULES
from .containerd import image_digests, load
from .failure import ClusterError
from .images import write_archive
from .state import State

PAUSE_SOURCE = Path(__file__).parent / "pause.c"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def pause_name() -> str:
    return f"localhost/pause:{hashlib.sha256(PAUSE_SOURCE.read_bytes()).hexdigest()[:16]}"


def coredns_name() -> str:
    return f"localhost/coredns:{MODULES['coredns'].key()}"


def load_base_images(state: State, report: Report) -> None:
    """Builds and loads what is not there; both names carry a hash of what is inside."""
    there = image_digests(state)
    with tempfile.TemporaryDirectory(dir=state.run) as scratch:
        archive = Path(scratch) / "image.tar"
        if pause_name() not in there:
            program = compile_static(PAUSE_SOURCE, Path(scratch) / "pause")
            write_archive(archive, pause_name(), {"/pause": program}, ["/pause"], architecture())
            load(state, archive, report)
        if coredns_name() not in there:
            program = binary("coredns").read_bytes()
            files = {"/coredns": program}
            write_archive(archive, coredns_name(), files, ["/coredns"], architecture())
            load(state, archive, report)


def compile_static(source: Path, target: Path) -> bytes:
    command = ["gcc", "-Os", "-static", "-o", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise ClusterError(f"gcc does not compile {source.name}: {done.stderr.strip()}")
    return target.read_bytes()


def architecture() -> str:
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise ClusterError(f"a cluster runs on {' or '.join(ARCHITECTURES)}, this is {machine}")
    return ARCHITECTURES[machine]
