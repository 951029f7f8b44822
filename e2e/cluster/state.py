# SPDX-License-Identifier: Apache-2.0
"""Where the cluster keeps what it knows: one folder, outside the source tree.

`processes.json` names every process that was started, `before.json` what the host looked like
before, so that `down` can tell its own from what was there.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .failure import ClusterError
from .processes import Identity

FLEETING = ("run", "kubelet", "etcd", "pki", "logs", "cni", "config")
RECORDS = ("kubeconfig", "settings.json", "before.json", "processes.json", "audit-policy.yaml")
SOCKETS = ("etcd.sock:0", "etcd-peer.sock:0")
CONTENT = "containerd"
# containerd hashes its shims' socket names to 64 characters, of the 107 that such a path may have.
LONGEST_ROOT = 34


@dataclass(frozen=True)
class State:
    root: Path

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def run(self) -> Path:
        """What lives only while the cluster does: sockets, mounts, network namespaces."""
        return self.root / "run"

    @property
    def content(self) -> Path:
        """containerd's store: imported images, kept by `down` and removed by `down --purge`."""
        return self.root / CONTENT

    @property
    def containerd_socket(self) -> Path:
        return self.run / "containerd.sock"

    def processes(self) -> dict[str, Identity]:
        recorded = self._read("processes.json")
        return {name: Identity(**identity) for name, identity in recorded.items()}

    def record_process(self, name: str, identity: Identity) -> None:
        known = self.processes() | {name: identity}
        self._write("processes.json", {n: asdict(i) for n, i in known.items()})

    def before(self) -> dict[str, Any]:
        return self._read("before.json")

    def record_before(self, facts: dict[str, Any]) -> None:
        self._write("before.json", facts)

    def settings(self) -> dict[str, Any]:
        return self._read("settings.json")

    def record_settings(self, settings: dict[str, Any]) -> None:
        self._write("settings.json", settings)

    def require_room_for_sockets(self) -> None:
        if len(os.fsencode(self.root)) > LONGEST_ROOT:
            raise ClusterError(
                f"HEADWAY_CLUSTER_DIR is too long for the sockets in it: "
                f"name a folder of at most {LONGEST_ROOT} characters"
            )

    def remove_files(self) -> None:
        """All but containerd's store, and nothing that the cluster did not make."""
        for name in FLEETING:
            shutil.rmtree(self.root / name, ignore_errors=True)
        for name in (*RECORDS, *SOCKETS):
            (self.root / name).unlink(missing_ok=True)

    def purge(self) -> None:
        shutil.rmtree(self.content, ignore_errors=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One `up` or `down` at a time."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.root / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self, name: str) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads((self.root / name).read_text())
        except FileNotFoundError:
            return {}
        return content

    def _write(self, name: str, content: dict[str, Any]) -> None:
        fresh = self.root / f".{name}.new"
        fresh.write_text(json.dumps(content, indent=2) + "\n")
        fresh.replace(self.root / name)


def state() -> State:
    configured = os.environ.get("HEADWAY_CLUSTER_DIR") or "/var/lib/headway-cluster"
    return State(Path(configured).absolute())
