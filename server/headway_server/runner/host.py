# SPDX-License-Identifier: Apache-2.0
"""What the machine, or the container's limits, leave to this process."""

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")


def available_memory(cgroup: Path = CGROUP, meminfo: Path = MEMINFO) -> int:
    """Bytes: the machine's free memory or what is left of the container's limit, the smaller."""
    fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    free = int(fields["MemAvailable"].split()[0]) * 1024
    limit = read_value(cgroup / "memory.max")
    if limit is None:
        return free
    stat = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    return min(free, max(0, limit - int(stat["anon"])))


def usable_cpus(cgroup: Path = CGROUP) -> int:
    """Whole CPUs of the container's quota, else those that the process may run on."""
    cpus = len(os.sched_getaffinity(0))
    file = cgroup / "cpu.max"
    quota, _, period = file.read_text().partition(" ") if file.is_file() else ("max", "", "")
    return cpus if quota == "max" else max(1, min(cpus, int(quota) // int(period)))


def read_value(file: Path) -> int | None:
    text = file.read_text().strip() if file.is_file() else "max"
    return None if text == "max" else int(text)
