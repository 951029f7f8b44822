# SPDX-License-Identifier: Apache-2.0
"""The library is built once, whole, by whoever comes first, and not at all without a compiler."""

import subprocess
import sys
from pathlib import Path

import pytest

from headway_server.native import build, library
from headway_server.native.library import NativeUnavailable


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sources that compile in no time."""
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "kernels.cpp").write_text("namespace ISA { int number() { return 7; } }")
    monkeypatch.setattr(build, "SOURCES", folder)
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(library, "BUILT", tmp_path / "package" / "built")
    return tmp_path / "cache" / "headway" / "native"


def test_two_processes_building_at_once_leave_one_file(sources: Path, tmp_path: Path) -> None:
    script = (
        "from pathlib import Path; from headway_server.native import build;"
        f"build.SOURCES = Path({str(sources)!r});"
        f"print(build.build(Path({str(tmp_path / 'out')!r})))"
    )
    builds = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    printed = {process.communicate()[0].strip() for process in builds}
    assert [process.returncode for process in builds] == [0, 0]
    assert printed == {str(tmp_path / "out" / build.file_name())}
    assert [file.name for file in (tmp_path / "out").iterdir()] == [build.file_name()]


def test_another_source_is_another_file(sources: Path) -> None:
    before = build.file_name()
    (sources / "more.h").write_text("")
    assert build.file_name() != before


def test_it_is_built_into_the_users_cache_and_then_found(sources: Path, cache: Path) -> None:
    assert library.find() is None
    assert library.build_here() == cache / build.file_name()
    assert library.find() == cache / build.file_name()


def test_one_beside_the_package_comes_first(sources: Path, cache: Path) -> None:
    library.build_here()
    beside = build.build(library.BUILT)
    assert library.find() == beside


def test_a_cache_that_cannot_be_written(sources: Path, cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text("a file where the folder should be")
    with pytest.raises(NativeUnavailable, match="cannot be written"):
        library.load_library()


def test_without_a_compiler(sources: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(NativeUnavailable, match=r"^there is no C\+\+ compiler$"):
        library.load_library()


def test_a_source_that_does_not_compile(sources: Path, cache: Path) -> None:
    (sources / "kernels.cpp").write_text("wrong")
    with pytest.raises(NativeUnavailable, match="failed with"):
        library.load_library()
    assert list(cache.iterdir()) == []


def test_an_unknown_kind_of_machine(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "s390x")
    with pytest.raises(build.BuildFailed, match="no kernels for s390x"):
        build.build(sources)
