# SPDX-License-Identifier: Apache-2.0
"""Starts and ends the cluster's programs, and never ends one it did not start.

A process is known by its pid and its start time together: a pid alone may belong to a stranger by
the time it is read back from disk.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .failure import ClusterError

POLL_SECONDS = 0.1
TERM_SECONDS = 10.0
LOG_TAIL_LINES = 12
# The kernel's promise counts from its own moment on: a caller killed before that is noticed here.
UNLESS_ORPHAN = '[ "$PPID" = "$0" ] || exit 1; exec "$@"'


@dataclass(frozen=True)
class Program:
    """What to run: a name, the whole command line, and where its output goes."""

    name: str
    command: tuple[str, ...]
    directory: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        return self.directory / "logs" / f"{self.name}.log"


@dataclass(frozen=True)
class Identity:
    """One process for good: `started` is its start time in clock ticks since boot."""

    pid: int
    started: int

    def alive(self) -> bool:
        return identify(self.pid) == self


def identify(pid: int) -> Identity | None:
    """None when no such process runs; a zombie does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, started = parse_stat(stat)
    return None if state in "ZX" else Identity(pid, started)


def parse_stat(line: str) -> tuple[str, int]:
    """State letter and start time of a /proc/PID/stat line, whose name may hold any character."""
    fields = line.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def start_detached(program: Program) -> Identity:
    """Outlives the caller: its own session, no terminal."""
    process = _spawn(program, program.command, own_session=True)
    found = identify(process.pid)
    process.returncode = 0  # Given up on purpose: it must not warn, nor be waited for.
    if found is None:
        raise ClusterError(f"{program.name} ended at once:\n{log_tail(program)}")
    return found


@contextmanager
def running(program: Program) -> Iterator[subprocess.Popen[bytes]]:
    """Lives as long as the block, and not longer than the caller: the kernel kills it then."""
    owner = ("setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", UNLESS_ORPHAN, str(os.getpid()))
    process = _spawn(program, (*owner, *program.command), own_session=False)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(TERM_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def stop(identities: Iterable[Identity], patience: float = TERM_SECONDS) -> None:
    """Asks all to end, waits, and kills those that remain."""
    alive = [identity for identity in identities if identity.alive()]
    for signal_number, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, TERM_SECONDS)):
        for identity in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(identity.pid, signal_number)
        deadline = time.monotonic() + seconds
        while alive and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            alive = [identity for identity in alive if identity.alive()]
    if alive:
        raise ClusterError(f"processes that do not end: {', '.join(str(i.pid) for i in alive)}")


def wait_until(
    condition: Callable[[], bool], what: str, seconds: float, failed: Callable[[], str | None]
) -> None:
    """Polls `condition`; gives up at once when `failed` has a reason, else after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        reason = failed()
        if reason is not None:
            raise ClusterError(f"{what}: {reason}")
        if time.monotonic() > deadline:
            raise ClusterError(f"{what}: not within {seconds:.0f} s")
        time.sleep(POLL_SECONDS)


def log_tail(program: Program) -> str:
    lines = program.log.read_text(errors="replace").splitlines()
    return "\n".join([f"last lines of {program.log}:", *lines[-LOG_TAIL_LINES:]])


def search_path() -> str:
    """The caller's PATH; with the system's programs on it even where root's own leaves them out."""
    return os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))


def _spawn(
    program: Program, command: tuple[str, ...], *, own_session: bool
) -> subprocess.Popen[bytes]:
    program.log.parent.mkdir(parents=True, exist_ok=True)
    with program.log.open("ab") as log:
        return subprocess.Popen(
            command,
            cwd=program.directory,
            env=os.environ | {"PATH": search_path()} | dict(program.environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=own_session,
        )
