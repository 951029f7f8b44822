# SPDX-License-Identifier: Apache-2.0
"""What each of Headway's images is made of, and the tag that follows from it.

A tag is a hash of the Dockerfile and of every file that it copies. It can be told without building
anything, and it changes exactly when the image would.
"""

import hashlib
import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import smollm2
from cluster.binaries import cache_dir

ROOT = Path(__file__).resolve().parents[1]
REPOSITORY = "localhost/headway"
LOCKED = ("pyproject.toml", "uv.lock")
HASH_DIGITS = 12


@dataclass(frozen=True)
class Image:
    """One Dockerfile; `sources` are the files and folders of the tree that go into the image."""

    name: str
    dockerfile: str
    sources: tuple[str, ...] = ()
    fixed_tag: str | None = None
    is_model: bool = False

    @property
    def context(self) -> Path:
        return smollm2.folder() if self.is_model else ROOT

    @property
    def folder(self) -> Path:
        """Where the built image lies, for a cluster to take in."""
        return cache_dir() / "images" / self.name

    def content(self) -> str:
        """A hash of everything in the tree, or in the model's folder, that the image is made of."""
        digest = hashlib.sha256((ROOT / "images" / self.dockerfile).read_bytes())
        for path in self._files():
            relative = path.relative_to(self.context)
            held = _project_table() if relative.name == "pyproject.toml" else path.read_bytes()
            digest.update(f"{relative} {len(held)}\n".encode())
            digest.update(held)
        return digest.hexdigest()[:HASH_DIGITS]

    def tag(self) -> str:
        return self.fixed_tag or f"{_project()['version']}-{self.content()}"

    def reference(self) -> str:
        return f"{REPOSITORY}/{self.name}:{self.tag()}"

    def _files(self) -> Iterator[Path]:
        for source in ("",) if self.is_model else self.sources:
            root = self.context / source
            inside = sorted(root.rglob("*")) if root.is_dir() else [root]
            yield from (
                path for path in inside if path.is_file() and path.parent.name != "__pycache__"
            )


IMAGES = {
    image.name: image
    for image in (
        Image("prometheus", "prometheus.Dockerfile", fixed_tag="2.42"),
        Image(
            "control-plane",
            "control-plane.Dockerfile",
            (
                *LOCKED,
                "crds/headway_api",
                "operator/headway_operator",
                "autotune/headway_autotune",
                "server/headway_server/__init__.py",
                "server/headway_server/scheduler",
            ),
        ),
        Image(
            "server", "server.Dockerfile", (*LOCKED, "crds/headway_api", "server/headway_server")
        ),
        Image(smollm2.NAME.lower(), "model.Dockerfile", fixed_tag="1", is_model=True),
    )
}


def _project_table() -> bytes:
    """What of pyproject.toml reaches an image; the settings of the tools around it do not."""
    return json.dumps(_project(), sort_keys=True).encode()


def _project() -> dict[str, object]:
    project: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project
