# SPDX-License-Identifier: Apache-2.0
"""A container's limits count, not the machine's size."""

from pathlib import Path

import pytest

from headway_server.runner.host import available_memory, usable_cpus

GIB = 2**30


@pytest.fixture
def meminfo(tmp_path: Path) -> Path:
    file = tmp_path / "meminfo"
    file.write_text("MemTotal:  16777216 kB\nMemAvailable:  8388608 kB\n")
    return file


@pytest.mark.parametrize(
    ("limit", "anonymous", "available"),
    [
        ("max", 0, 8 * GIB),
        (str(4 * GIB), GIB, 3 * GIB),
        (str(64 * GIB), GIB, 8 * GIB),
        (str(GIB), 2 * GIB, 0),
    ],
)
def test_available_memory(
    limit: str, anonymous: int, available: int, tmp_path: Path, meminfo: Path
) -> None:
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    (tmp_path / "memory.stat").write_text(f"anon {anonymous}\nfile 123\n")
    assert available_memory(tmp_path, meminfo) == available


def test_a_machine_without_limits(tmp_path: Path, meminfo: Path) -> None:
    assert available_memory(tmp_path, meminfo) == 8 * GIB
    assert usable_cpus(tmp_path) >= 1


@pytest.mark.parametrize(
    ("quota", "cpus"), [("50000 100000", 1), ("150000 100000", 1), ("800000 100000", 4)]
)
def test_a_cpu_quota_is_whole_cpus_and_at_least_one(
    quota: str, cpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(4)))
    (tmp_path / "cpu.max").write_text(f"{quota}\n")
    assert usable_cpus(tmp_path) == cpus
