# SPDX-License-Identifier: Apache-2.0
"""Builds the cluster's programs once and keeps them in a cache outside the tree.

A build lands by rename: a folder under its key is always whole. Runs at the same time wait for
each other.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from .catalogue import Module, find_module, module_of
from .exclusion import alone
from .failure import ClusterError

GO_MINIMUM = (1, 26)

Report = Callable[[str], None]


def cache_dir() -> Path:
    configured = os.environ.get("HEADWAY_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "headway"


def module_dir(module: Module) -> Path:
    """Where the binaries of this module are, or will be once `build` has run."""
    return cache_dir() / "bin" / f"{module.name}-{module.key()}"


def is_built(name: str) -> bool:
    return module_dir(find_module(name)).exists()


def binary(name: str) -> Path:
    """The built program of that name; says which command builds it when it is not there."""
    module = module_of(name)
    path = module_dir(module) / name
    if not path.exists():
        raise ClusterError(f"{name} is not built yet: run `python -m cluster build {module.name}`")
    return path


def build(names: Iterable[str], report: Report) -> None:
    """Builds what is missing, one module after another, and reports one line for each."""
    for module in [find_module(name) for name in names]:
        label = f"{module.name} {module.version()}"
        if module_dir(module).exists():
            report(f"{label}: already built")
            continue
        waiting = partial(report, f"{label}: another run is building it, waiting")
        with alone(cache_dir() / "bin" / f".{module.name}.lock", waiting):
            if module_dir(module).exists():
                report(f"{label}: built by another run")
                continue
            report(f"{label}: building (minutes, once)")
            started = time.monotonic()
            _build_module(module, module_dir(module))
            report(f"{label}: built in {time.monotonic() - started:.0f} s")


def path_dir(names: Iterable[str]) -> Path:
    """One folder with a link to every built binary of these modules, to put on PATH."""
    modules = [find_module(name) for name in names]
    combined = hashlib.sha256(" ".join(module_dir(m).name for m in modules).encode())
    folder = cache_dir() / "bin" / f"path-{combined.hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    for module in modules:
        for name in module.binaries:
            link = folder / name
            if not link.is_symlink():
                fresh = folder / f".{name}.{os.getpid()}"
                fresh.symlink_to(Path("..") / module_dir(module).name / name)
                fresh.replace(link)
    return folder


def require_go() -> str:
    """The go command; an error that says what to install when it is missing or too old."""
    wanted = ".".join(map(str, GO_MINIMUM))
    go = shutil.which("go")
    if go is None:
        raise ClusterError(f"the cluster is built from source: install Go {wanted} or later")
    said = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=True)
    found = parse_go_version(said.stdout)
    if found < GO_MINIMUM:
        raise ClusterError(f"Go {wanted} or later is needed, {go} is {said.stdout.strip()}")
    return go


def parse_go_version(text: str) -> tuple[int, int]:
    matched = re.match(r"go(\d+)\.(\d+)", text.strip())
    if matched is None:
        raise ClusterError(f"`go env GOVERSION` said {text.strip()!r}, which is not a Go version")
    return int(matched.group(1)), int(matched.group(2))


def _build_module(module: Module, target: Path) -> None:
    go = require_go()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{module.name}-") as scratch:
        built = Path(scratch) / "built"
        built.mkdir()
        # Left alone, `go build` names a program after its path, and etcd's ends in server/v3.
        output = built / module.binaries[0] if len(module.commands) == 1 else built
        command = ["nice", "-n", "10", go, "build", *module.build_flags()]
        command += ["-o", f"{output}/" if output.is_dir() else str(output), *module.commands]
        environment = os.environ | {
            "CGO_ENABLED": "0",
            "GOFLAGS": "-mod=readonly",
            "GOTOOLCHAIN": "local",
            "GOWORK": "off",
        }
        done = subprocess.run(
            command, cwd=module.directory, env=environment, capture_output=True, text=True
        )
        if done.returncode != 0:
            raise ClusterError(
                f"`go build` of {module.name} failed:\n{done.stderr[-4000:].strip()}"
            )
        built.rename(target)
