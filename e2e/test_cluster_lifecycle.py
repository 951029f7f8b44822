# SPDX-License-Identifier: Apache-2.0
"""Taking the cluster down, and bringing it back after everything in it was killed.

Destructive: what runs on the cluster is gone afterwards. The cluster itself is up again at the end.
"""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import leftovers, state
from cluster.leftovers import SYSCTLS
from test_cluster import apply, eventually, get, kubectl, pod, run_cluster, wait_for_pod

NAMESPACE = "default"
# Where kubelet, containerd and the CNI plugins write whatever they are told.
OUTSIDE = [
    Path(name)
    for name in ("/run/containerd", "/var/lib/cni", "/var/lib/kubelet", "/var/log/containers")
]


def command_output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def host_snapshot() -> dict[str, set[str]]:
    """What a cluster could leave behind, read without the code that removes it."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    rules = re.sub(
        r"counter packets \d+ bytes \d+", "counter", command_output("nft", "list", "ruleset")
    )
    hierarchies = [path for path in Path("/sys/fs/cgroup").iterdir() if path.is_dir()]
    return {
        # An image that is built at the same time has mounts of its own.
        "mounts": {line.split()[4] for line in mounts if "containers/storage" not in line},
        "links": set(re.findall(r"^\d+: ([^:@]+)", command_output("ip", "link"), re.MULTILINE)),
        "rules": set(rules.splitlines()),
        "sets": set(command_output("ipset", "list", "-name").split()),
        "cgroups": {str(path) for top in hierarchies for path in top.iterdir() if path.is_dir()},
        "sysctls": {f"{name}={leftovers.read_sysctl(name)}" for name in SYSCTLS},
        "files": {str(path) for folder in OUTSIDE for path in folder.rglob("*")},
        "programs": our_processes(),
    }


def added_since(before: dict[str, set[str]]) -> dict[str, set[str]]:
    """Only what is there now and was not."""
    added = {kind: now - before[kind] for kind, now in host_snapshot().items()}
    return {kind: found for kind, found in added.items() if found}


def our_processes() -> set[str]:
    """Processes that speak of the cluster's folder, and those that run a test pod's program."""
    found = set()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(state.state().root) in command or command.startswith(b"/bin/busybox\0"):
            found.add(f"{folder.name} {command!r}")
    return found


@pytest.fixture
def cold_host() -> Iterator[dict[str, set[str]]]:
    """The host without the cluster; with it again afterwards."""
    run_cluster("down")
    yield host_snapshot()
    run_cluster("up")


def start_with_a_pod() -> None:
    """And with a policy on it, which makes address sets in the kernel."""
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "survivor", "namespace": NAMESPACE},
        "spec": {"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}]}]},
    }
    run_cluster("up")
    apply(policy, pod("survivor", NAMESPACE))
    wait_for_pod("survivor", NAMESPACE)


def test_down_leaves_the_host_as_it_was(cold_host: dict[str, set[str]]) -> None:
    assert "KUBE" not in str(cold_host["rules"])
    assert "headway" not in str(cold_host["cgroups"])
    assert cold_host["programs"] == set()
    start_with_a_pod()
    wanted = cold_host.keys() - {"sysctls"}
    eventually(lambda: wanted <= added_since(cold_host).keys(), "traces of each kind")
    run_cluster("down")
    assert added_since(cold_host) == {}
    assert not state.state().kubeconfig.exists()


def test_down_after_everything_was_killed_leaves_the_host_as_it_was(
    cold_host: dict[str, set[str]],
) -> None:
    start_with_a_pod()
    kill_everything()
    run_cluster("down")
    assert added_since(cold_host) == {}


def test_up_recovers_after_everything_was_killed() -> None:
    start_with_a_pod()
    kill_everything()
    assert "clearing an earlier run" in run_cluster("up")
    assert "survivor" not in kubectl("get", "pods", f"--namespace={NAMESPACE}")
    apply(pod("newcomer", NAMESPACE))
    wait_for_pod("newcomer", NAMESPACE)
    eventually(lambda: len(get("nodes")["items"]) == 1, "one node")
    kubectl("delete", "pod", f"--namespace={NAMESPACE}", "newcomer")


def test_an_up_that_was_killed_half_way_is_finished_by_the_next() -> None:
    own = state.state()
    victim = own.processes()["kubelet"]
    os.kill(victim.pid, signal.SIGKILL)
    eventually(lambda: not victim.alive(), "the end of kubelet")
    with pytest.raises(AssertionError, match="stopped"):
        run_cluster("status")
    assert "clearing an earlier run" in run_cluster("up")
    assert "Ready" in run_cluster("status")


def test_images_are_there_again_after_down() -> None:
    run_cluster("down")
    run_cluster("up")
    apply(pod("again", NAMESPACE))
    wait_for_pod("again", NAMESPACE)
    kubectl("delete", "pod", f"--namespace={NAMESPACE}", "again")


def kill_everything() -> None:
    """Daemons, shims and the pods' own processes, at once and without a warning."""
    found = leftovers.find(state.state()).processes
    assert len(found) > len(state.state().processes())
    for identity in found:
        os.kill(identity.pid, signal.SIGKILL)
    eventually(lambda: not any(identity.alive() for identity in found), "the end of all processes")
