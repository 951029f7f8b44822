# SPDX-License-Identifier: Apache-2.0
"""Compiles the native library: `python -m headway_server.native.build FOLDER`.

The file's name holds a hash of the sources and of the way they are compiled, so that an old one is
never taken for a new one. It appears complete or not at all, whoever else is building it. Needs
nothing but the standard library and a C++20 compiler, so that an image's build can run it alone.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parent / "src"
COMPILERS = ("c++", "g++", "clang++")
FLAGS = (
    "-O3",
    "-std=c++20",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-pthread",
)
LINK = ("-shared", "-pthread", "-static-libstdc++", "-static-libgcc")

# The kernels are compiled once for each of these; the library chooses when it runs.
INSTRUCTION_SETS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {"portable": (), "avx2": ("-mavx2", "-mfma")},
    "aarch64": {"portable": ()},
}
KERNELS = "kernels.cpp"


class BuildFailed(Exception):
    """One sentence."""


def file_name() -> str:
    digest = hashlib.sha256(repr((FLAGS, LINK, INSTRUCTION_SETS)).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + source.read_bytes())
    return f"headway-{platform.machine()}-{digest.hexdigest()[:16]}.so"


def build(folder: Path) -> Path:
    """Leaves the library in `folder`. Raises BuildFailed, or OSError if that cannot be written."""
    machine = platform.machine()
    if machine not in INSTRUCTION_SETS:
        raise BuildFailed(f"there are no kernels for {machine}")
    compiler = find_compiler()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".building-") as scratch:
        objects = []
        for name, arguments in units(machine):
            objects.append(str(Path(scratch) / f"{name}.o"))
            run(compiler, *FLAGS, *arguments, "-o", objects[-1])
        fresh = Path(scratch) / "fresh.so"
        run(compiler, *objects, *LINK, "-o", str(fresh))
        return fresh.replace(folder / file_name())


def units(machine: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What is compiled, by the name of the object."""
    for source in sorted(SOURCES.glob("*.cpp")):
        if source.name == KERNELS:
            for name, flags in INSTRUCTION_SETS[machine].items():
                yield name, (*flags, f"-DISA={name}", "-c", str(source))
        else:
            yield source.stem, ("-c", str(source))


def find_compiler() -> str:
    chosen = os.environ.get("CXX")
    for name in (chosen,) if chosen else COMPILERS:
        if path := shutil.which(name):
            return path
    raise BuildFailed("there is no C++ compiler")


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise BuildFailed(f"{command[0]} failed with {last!r}")


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
