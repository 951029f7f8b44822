# SPDX-License-Identifier: Apache-2.0
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from cluster import binaries, catalogue
from cluster.failure import ClusterError

FAKE_GO = """\
#!/bin/sh
if [ "$1" = env ]; then echo go1.26.1; exit 0; fi
echo built >> "$FAKE_GO_LOG"
[ -z "$FAKE_GO_ERROR" ] || { echo "$FAKE_GO_ERROR" >&2; exit 1; }
while [ "$1" != -o ]; do shift; done
echo program > "$2"
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two modules of one program each, in a folder that a test may change."""
    for name in ("one", "two"):
        folder = tmp_path / "modules" / name
        folder.mkdir(parents=True)
        (folder / "go.mod").write_text(f"module {name}\n\nrequire example.com/{name} v1.2.3\n")
        (folder / "go.sum").write_text("")
        (folder / "tools.go").write_text("package tools\n")
    known = {
        name: catalogue.Module(name, f"example.com/{name}", (f"example.com/{name}",), (name,))
        for name in ("one", "two")
    }
    monkeypatch.setattr(catalogue, "MODULES_DIR", tmp_path / "modules")
    monkeypatch.setattr(catalogue, "MODULES", known)
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "modules"


@pytest.fixture
def go_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `go` that writes one line here for each build."""
    tool = tmp_path / "tools" / "go"
    tool.parent.mkdir()
    tool.write_text(FAKE_GO)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_GO_LOG", str(tmp_path / "go.log"))
    return tmp_path / "go.log"


@pytest.mark.parametrize("name", ["go.mod", "go.sum", "tools.go"])
def test_a_changed_file_changes_the_key_of_its_module_alone(modules: Path, name: str) -> None:
    before = {n: module.key() for n, module in catalogue.MODULES.items()}
    with (modules / "one" / name).open("a") as file:
        file.write("// changed\n")
    assert catalogue.MODULES["one"].key() != before["one"]
    assert catalogue.MODULES["two"].key() == before["two"]


def test_build_flags_are_part_of_the_key(modules: Path) -> None:
    one = catalogue.MODULES["one"]
    assert replace(one, tags="no_btrfs").key() != one.key()


def test_a_module_is_built_once(modules: Path, go_log: Path) -> None:
    said: list[str] = []
    binaries.build(["one"], said.append)
    binaries.build(["one"], said.append)
    assert binaries.binary("one").read_text() == "program\n"
    assert go_log.read_text() == "built\n"
    assert said[0] == "one v1.2.3: building (minutes, once)"
    assert said[-1] == "one v1.2.3: already built"


def test_two_runs_at_once_build_once(modules: Path, go_log: Path) -> None:
    said: list[str] = []
    runs = [threading.Thread(target=binaries.build, args=(["one"], said.append)) for _ in range(4)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert go_log.read_text() == "built\n"


def test_a_failed_build_leaves_nothing_and_shows_the_compiler(
    modules: Path, go_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_GO_ERROR", "undefined: thing")
    with pytest.raises(ClusterError, match="undefined: thing"):
        binaries.build(["one"], lambda line: None)
    with pytest.raises(ClusterError, match="cluster build one"):
        binaries.binary("one")
    assert not [p for p in (binaries.cache_dir() / "bin").iterdir() if p.is_dir()]


def test_path_folder_holds_the_programs_of_the_modules_asked_for(
    modules: Path, go_log: Path
) -> None:
    binaries.build(["one", "two"], lambda line: None)
    folder = binaries.path_dir(["one"])
    assert [entry.name for entry in folder.iterdir()] == ["one"]
    assert (folder / "one").read_text() == "program\n"
    assert binaries.path_dir(["one", "two"]) != folder


def test_an_unknown_module_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ClusterError, match="no module nomad: the modules are kubernetes, etcd"):
        binaries.build(["nomad"], lambda line: None)


def test_missing_go_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ClusterError, match=r"install Go 1\.26 or later"):
        binaries.require_go()


@pytest.mark.parametrize(
    ("text", "version"), [("go1.26.8\n", (1, 26)), ("go1.9", (1, 9)), ("go1.27rc1", (1, 27))]
)
def test_go_versions(text: str, version: tuple[int, int]) -> None:
    assert binaries.parse_go_version(text) == version


def test_every_module_pins_a_version() -> None:
    for module in catalogue.MODULES.values():
        assert module.version().startswith("v")
        source = "".join(path.read_text() for path in module.directory.glob("*.go"))
        assert all(f'"{command}"' in source or command == "." for command in module.commands)
