# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import leftovers
from cluster.state import State

MOUNTINFO = """\
24 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
90 24 0:40 / /var/lib/headway-cluster/run/netns/cni-1 rw shared:2 - nsfs nsfs rw
91 24 0:41 / /var/lib/headway-cluster/kubelet/pods/a\\040b rw shared:3 - tmpfs tmpfs rw
92 91 0:42 / /var/lib/headway-cluster/kubelet/pods/a\\040b/inner rw shared:4 - tmpfs tmpfs rw
93 24 0:43 / /var/lib/headway-cluster-of-another rw shared:5 - tmpfs tmpfs rw
94 24 0:44 / /var/lib/kubelet/pods/c rw shared:6 - tmpfs tmpfs rw
"""

MOUNTS = """\
tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
proc /proc proc rw 0 0
"""


def test_own_mounts_are_those_below_the_state_folder_innermost_first() -> None:
    root = Path("/var/lib/headway-cluster")
    assert leftovers.own_mounts(root, MOUNTINFO) == [
        root / "kubelet/pods/a b/inner",
        root / "kubelet/pods/a b",
        root / "run/netns/cni-1",
    ]


def test_every_cgroup_hierarchy_is_looked_at() -> None:
    assert leftovers.cgroup_roots(MOUNTS) == [
        Path("/sys/fs/cgroup/memory"),
        Path("/sys/fs/cgroup/unified"),
    ]


@pytest.fixture
def sleeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Pids of a program of the binaries' cache, run on our folder and on a stranger's."""
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))
    program = tmp_path / "cache" / "bin" / "sleep"
    program.parent.mkdir(parents=True)
    shutil.copy("/bin/sleep", program)
    # The shell's $0 carries the folder's name, as a daemon's --config does.
    started = [
        subprocess.Popen([tmp_path / folder, "60"], executable=program)
        for folder in ("ours", "theirs")
    ]
    yield [str(process.pid) for process in started]
    for process in started:
        process.kill()
        process.wait()


def test_own_processes_are_ours_by_program_and_folder(tmp_path: Path, sleeper: list[str]) -> None:
    found = leftovers.own_processes(State(tmp_path / "ours"))
    assert [str(identity.pid) for identity in found] == sleeper[:1]
    assert leftovers.own_processes(State(tmp_path / "elsewhere")) == []


def test_nothing_left_is_false_and_something_left_is_counted() -> None:
    assert not leftovers.Leftovers([], [], [], [], [])
    left = leftovers.Leftovers([], [Path("/a"), Path("/b")], ["headway0"], [], [])
    assert left
    assert str(left) == "2 mounts, 1 network links"


def test_removing_files_keeps_images_and_what_others_put_there(tmp_path: Path) -> None:
    for name in ("pki", "logs", "containerd", "photos"):
        (tmp_path / name).mkdir()
    (tmp_path / "kubeconfig").touch()
    state = State(tmp_path)
    state.remove_files()
    assert sorted(os.listdir(tmp_path)) == ["containerd", "photos"]
    state.purge()
    assert os.listdir(tmp_path) == ["photos"]
