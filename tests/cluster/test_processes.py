# SPDX-License-Identifier: Apache-2.0
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cluster import processes
from cluster.failure import ClusterError
from cluster.processes import Identity, Program

OWNER = """
import sys
from pathlib import Path
from cluster.processes import Program, running
with running(Program("sleep", ("sleep", "60"), Path(sys.argv[1]))) as child:
    print(child.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def sleep(tmp_path: Path) -> Program:
    return Program("sleep", ("sleep", "60"), tmp_path)


def wait_for_end(pid: int) -> None:
    processes.wait_until(
        lambda: processes.identify(pid) is None, "the process", 30, failed=lambda: None
    )


def test_a_name_with_brackets_and_spaces_is_parsed() -> None:
    line = f"7 (a) (b c) S {' '.join(str(n) for n in range(1, 40))}"
    assert processes.parse_stat(line) == ("S", 19)


def test_a_process_ends_with_its_block(sleep: Program) -> None:
    with processes.running(sleep) as process:
        assert processes.identify(process.pid) is not None
    assert processes.identify(process.pid) is None


def test_a_process_ends_with_an_owner_that_is_killed(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with owner:
        assert owner.stdout is not None
        child = int(owner.stdout.readline())
        assert processes.identify(child) is not None
        owner.kill()
        wait_for_end(child)


def test_stop_ends_a_detached_process(sleep: Program) -> None:
    identity = processes.start_detached(sleep)
    assert identity.alive()
    processes.stop([identity])
    assert not identity.alive()


def test_stop_kills_one_that_does_not_listen(tmp_path: Path) -> None:
    script = "trap '' TERM; echo deaf; while :; do sleep 0.1; done"
    deaf = Program("deaf", ("sh", "-c", script), tmp_path)
    identity = processes.start_detached(deaf)
    processes.wait_until(
        lambda: "deaf" in deaf.log.read_text(), "the shell", 30, failed=lambda: None
    )
    processes.stop([identity], patience=0.2)
    assert not identity.alive()


def test_stop_spares_another_process_with_the_same_pid(sleep: Program) -> None:
    with processes.running(sleep) as process:
        found = processes.identify(process.pid)
        assert found is not None
        processes.stop([Identity(found.pid, found.started - 1)])
        assert found.alive()


def test_a_zombie_does_not_run() -> None:
    process = subprocess.Popen(["sleep", "60"])
    process.send_signal(signal.SIGKILL)
    wait_for_end(process.pid)
    process.wait()


def test_waiting_gives_up_at_once_with_a_reason() -> None:
    with pytest.raises(ClusterError, match="the server: it ended"):
        processes.wait_until(lambda: False, "the server", 600, failed=lambda: "it ended")


def test_waiting_gives_up_after_its_time() -> None:
    with pytest.raises(ClusterError, match="not within 0 s"):
        processes.wait_until(lambda: False, "the server", 0, failed=lambda: None)
