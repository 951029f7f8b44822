# SPDX-License-Identifier: Apache-2.0
"""Finds and removes everything that a cluster leaves on the host.

`up` calls it after a killed run, `down` after an orderly one. It touches only what carries the
cluster's own names: its state folder, its binaries, its cgroup, its bridge. Rules bear the names
that every Kubernetes gives them, so they go only where a record says that `up` was at work.
"""

import json
import os
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from . import addresses, rules, strays
from .binaries import cache_dir
from .failure import ClusterError
from .processes import POLL_SECONDS, Identity, identify, stop
from .state import State

CGROUP = "headway-cluster"
CGROUP_SECONDS = 15.0
SYSCTLS = (
    "net.ipv4.ip_forward",
    "net.bridge.bridge-nf-call-iptables",
    "net.bridge.bridge-nf-call-ip6tables",
    "vm.overcommit_memory",
    "vm.panic_on_oom",
    "kernel.panic",
    "kernel.panic_on_oops",
    "kernel.keys.root_maxkeys",
    "kernel.keys.root_maxbytes",
)


@dataclass(frozen=True)
class Leftovers:
    processes: list[Identity]
    mounts: list[Path]
    links: list[str]
    rules: list[str]
    cgroups: list[Path]

    def __bool__(self) -> bool:
        return any((self.processes, self.mounts, self.links, self.rules, self.cgroups))

    def __str__(self) -> str:
        counts = {
            "processes": len(self.processes),
            "mounts": len(self.mounts),
            "network links": len(self.links),
            "packet filter chains": len(self.rules),
            "cgroups": len(self.cgroups),
        }
        return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def find(state: State) -> Leftovers:
    groups = cgroups()
    return Leftovers(
        processes=sorted(
            {*own_processes(state), *_processes_in(groups)}, key=lambda found: found.pid
        ),
        mounts=own_mounts(state.root, Path("/proc/self/mountinfo").read_text()),
        links=own_links(),
        rules=rules.cluster_rules() if state.before() else [],
        cgroups=groups,
    )


def remove(state: State, patience: float = 0.0) -> None:
    """Processes first, then what they held; `patience` is how long they may take to end (s)."""
    found = find(state)
    stop([i for i in state.processes().values() if i.alive()], patience)
    stop(found.processes, 0.0)
    _remove_cgroups()
    _unmount(state)
    for link in own_links():
        subprocess.run(["ip", "link", "delete", link], capture_output=True)
    if before := state.before():
        rules.remove_rules(before["tables"])
        strays.remove(state)
        for name, value in before["sysctls"].items():
            _sysctl_path(name).write_text(value)
    state.remove_files()


def host_facts() -> dict[str, object]:
    """What `up` changes on the host, as it is before it does."""
    values = {name: read_sysctl(name) for name in SYSCTLS}
    return {
        "sysctls": {name: value for name, value in values.items() if value is not None},
        "tables": rules.tables(),
    }


def read_sysctl(name: str) -> str | None:
    path = _sysctl_path(name)
    return path.read_text().strip() if path.exists() else None


def own_processes(state: State) -> list[Identity]:
    """Those recorded, and any that runs one of our binaries on our state folder (shims do)."""
    found = [identity for identity in state.processes().values() if identity.alive()]
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            program = Path(os.readlink(entry / "exe"))
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if program.is_relative_to(cache_dir() / "bin") and os.fsencode(state.root) in command:
            identity = identify(int(entry.name))
            found += [identity] if identity else []
    return found


def own_mounts(root: Path, mountinfo: str) -> list[Path]:
    """Mount points below `root`, the innermost first."""
    points = [Path(_unescaped(line.split()[4])) for line in mountinfo.splitlines()]
    return [point for point in reversed(points) if point.is_relative_to(root)]


def own_links() -> list[str]:
    """The bridge and the pod ends that hang on it."""
    listed = subprocess.run(
        ["ip", "-json", "link", "show"], capture_output=True, text=True, check=True
    )
    links = json.loads(listed.stdout)
    ports = [link["ifname"] for link in links if link.get("master") == addresses.BRIDGE]
    return ports + [link["ifname"] for link in links if link["ifname"] == addresses.BRIDGE]


def cgroup_roots(mounts: str) -> list[Path]:
    """Mount points of every cgroup hierarchy in the text of /proc/mounts."""
    lines = (line.split() for line in mounts.splitlines())
    return [Path(_unescaped(line[1])) for line in lines if line[2] in ("cgroup", "cgroup2")]


def cgroups() -> list[Path]:
    """Our cgroups in every hierarchy, children before parents."""
    found = []
    for root in cgroup_roots(Path("/proc/mounts").read_text()):
        for folder, _, _ in os.walk(root / CGROUP, topdown=False):
            found.append(Path(folder))
    return found


def create_cgroup() -> None:
    """The parent of all pods, in every hierarchy; kubelet wants it to be there."""
    for root in cgroup_roots(Path("/proc/mounts").read_text()):
        available = root / "cgroup.controllers"
        if available.exists():
            enabled = " ".join(f"+{name}" for name in available.read_text().split())
            (root / "cgroup.subtree_control").write_text(enabled)
        (root / CGROUP).mkdir(exist_ok=True)
        _inherit_cpus(root)


def _processes_in(groups: list[Path]) -> list[Identity]:
    pids: set[int] = set()
    for group in groups:
        try:
            pids.update(map(int, (group / "cgroup.procs").read_text().split()))
        except OSError:
            continue
    return [identity for pid in pids if (identity := identify(pid)) is not None]


def _remove_cgroups() -> None:
    deadline = time.monotonic() + CGROUP_SECONDS
    while groups := cgroups():
        stop(_processes_in(groups), 0.0)
        for group in groups:
            try:
                group.rmdir()
            except OSError:
                continue
        if time.monotonic() > deadline:
            raise ClusterError(f"cgroups that cannot be removed: {', '.join(map(str, cgroups()))}")
        time.sleep(POLL_SECONDS)


def _inherit_cpus(root: Path) -> None:
    """A new cgroup of the old cpuset hierarchy owns no CPU until it is given some."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        parent, own = root / name, root / CGROUP / name
        if parent.exists() and own.exists():
            own.write_text(parent.read_text())


def _unmount(state: State) -> None:
    for _ in range(2):
        mounts = own_mounts(state.root, Path("/proc/self/mountinfo").read_text())
        if not mounts:
            return
        subprocess.run(["umount", "--lazy", *map(str, mounts)], capture_output=True)
    raise ClusterError(f"mounts that cannot be removed: {', '.join(map(str, mounts))}")


def _sysctl_path(name: str) -> Path:
    return Path("/proc/sys") / name.replace(".", "/")


def _unescaped(text: str) -> str:
    """Mount tables write a space as \\040."""
    return re.sub(r"\\(\d{3})", lambda code: chr(int(code.group(1), 8)), text)
