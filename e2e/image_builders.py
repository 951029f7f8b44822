# SPDX-License-Identifier: Apache-2.0
"""The two programs that can build an image, behind the few verbs that `images` needs.

buildah needs no daemon and exports OCI folders. Docker keeps its images to itself, for a cluster
that takes them from there or from a registry.
"""

import collections
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

Report = Callable[[str], None]

IMAGES_DIR = Path(__file__).resolve().parents[1] / "images"
CERTIFICATES = Path("/etc/ssl/certs")
SUITE = "bookworm"
BASE_PACKAGES = ("ca-certificates", "python3", "python3-venv")
LAST_LINES = 40


class BuildError(Exception):
    """Printed as it is, without a traceback; it says what to do."""


class Builder(Protocol):
    base_identity: str

    def build(
        self,
        dockerfile: Path,
        context: Path,
        reference: str,
        arguments: Mapping[str, str],
        report: Report,
    ) -> None: ...

    def export(self, reference: str, folder: Path) -> None:
        """Leaves the image, and no other, in an OCI folder, if this builder can."""

    def forget_other_tags(self, reference: str) -> None: ...


def choose_builder(base: str | None, cache: Path, report: Report) -> Builder:
    if _works("buildah", "info") and _works("skopeo", "--version"):
        return Buildah(base or made_base(cache, report))
    if _works("docker", "info"):
        return Docker(base)
    raise BuildError(
        "no program here builds images: run `apt-get install --no-install-recommends buildah"
        " mmdebstrap skopeo`, or start Docker"
    )


class Buildah:
    # No layer is isolated by a runtime of its own, so that this works inside containers too.
    _build = ("buildah", "bud", "--layers", "--isolation", "chroot", "--network", "host")

    def __init__(self, base: str) -> None:
        self.base_identity = base

    def build(
        self,
        dockerfile: Path,
        context: Path,
        reference: str,
        arguments: Mapping[str, str],
        report: Report,
    ) -> None:
        command = [*self._build, "--file", str(dockerfile), "--tag", reference]
        given = {"BASE": self.base_identity, "UV_NO_CACHE": "false", **arguments}
        for name, value in given.items():
            if f"ARG {name}" in dockerfile.read_text():
                command += ["--build-arg", f"{name}={value}"]
        uv_cache = _uv_cache()
        uv_cache.mkdir(parents=True, exist_ok=True)
        command += ["--volume", f"{uv_cache}:/root/.cache/uv"]
        if CERTIFICATES.is_dir():
            # A proxy's certificate that this machine trusts, for the time of the build alone.
            command += ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro"]
        _stream([*command, str(context)], report)

    def export(self, reference: str, folder: Path) -> None:
        # Uncompressed, a layer keeps its name, and one that the folder holds is not written again.
        source, target = f"containers-storage:{reference}", f"oci:{folder}:{reference}"
        _run("skopeo", "copy", "--quiet", "--dest-oci-accept-uncompressed-layers", source, target)
        keep_only(folder, reference)

    def forget_other_tags(self, reference: str) -> None:
        listed = _run("buildah", "images", "--format", "{{.Name}}:{{.Tag}}").splitlines()
        repository = reference.rpartition(":")[0]
        for other in listed:
            if other.rpartition(":")[0] == repository and other != reference:
                _run("buildah", "rmi", other)


class Docker:
    def __init__(self, base: str | None) -> None:
        self.base_identity = base or ""

    def build(
        self,
        dockerfile: Path,
        context: Path,
        reference: str,
        arguments: Mapping[str, str],
        report: Report,
    ) -> None:
        given = dict(arguments)
        if self.base_identity and "ARG BASE" in dockerfile.read_text():
            given["BASE"] = self.base_identity
        pairs = (word for item in given.items() for word in ("--build-arg", "=".join(item)))
        command = ["docker", "build", "--file", str(dockerfile), "--tag", reference, *pairs]
        _stream([*command, str(context)], report)

    def export(self, reference: str, folder: Path) -> None:
        """The image stays with Docker; an older one of another builder must not pass for it."""
        (folder / "index.json").unlink(missing_ok=True)

    def forget_other_tags(self, reference: str) -> None:
        """Nothing: what Docker keeps is its user's affair."""


def keep_only(folder: Path, reference: str) -> None:
    """Drops other images from an OCI folder, with the blobs that only they used."""
    index = json.loads((folder / "index.json").read_text())
    wanted = [entry for entry in index["manifests"] if _named(entry) == reference]
    if len(wanted) != 1:
        raise BuildError(f"{folder} does not hold {reference}: remove that folder and build again")
    fresh = folder / "index.json.fresh"
    fresh.write_text(json.dumps(index | {"manifests": wanted}))
    fresh.replace(folder / "index.json")
    blobs = folder / "blobs" / "sha256"
    manifest_digest = _hex(wanted[0])
    manifest = json.loads((blobs / manifest_digest).read_text())
    used = {manifest_digest, *map(_hex, (manifest["config"], *manifest["layers"]))}
    for blob in blobs.iterdir():
        if blob.name not in used:
            blob.unlink()


def made_base(cache: Path, report: Report) -> str:
    """The base image made of Debian's packages; its tag says of which."""
    recipe = hashlib.sha256(" ".join((SUITE, *BASE_PACKAGES)).encode()).hexdigest()[:12]
    reference = f"localhost/headway/base:{SUITE}-{recipe}"
    if _works("buildah", "inspect", "--type", "image", reference):
        return reference
    folder = cache / "base" / recipe
    archive = folder / "base.tar"
    if not archive.exists():
        if shutil.which("mmdebstrap") is None:
            raise BuildError(
                "the base image is made with mmdebstrap: run `apt-get install"
                " --no-install-recommends mmdebstrap`, or name a base image with --base"
            )
        report(f"{reference}: fetching Debian's packages, once")
        folder.mkdir(parents=True, exist_ok=True)
        fresh = folder / "fresh.tar"
        packages = f"--include={','.join(BASE_PACKAGES)}"
        _run("mmdebstrap", "--quiet", "--variant=minbase", packages, SUITE, str(fresh))
        fresh.rename(archive)
    dockerfile = IMAGES_DIR / "base.Dockerfile"
    _run(*Buildah._build, "--file", str(dockerfile), "--tag", reference, str(folder))
    return reference


def _named(entry: dict[str, dict[str, str]]) -> str:
    return entry.get("annotations", {}).get("org.opencontainers.image.ref.name", "")


def _hex(descriptor: dict[str, str]) -> str:
    return descriptor["digest"].removeprefix("sha256:")


def _uv_cache() -> Path:
    configured = os.environ.get("UV_CACHE_DIR")
    return Path(configured) if configured else Path.home() / ".cache" / "uv"


def _works(*command: str) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"`{' '.join(command)}` failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def _stream(command: list[str], report: Report) -> None:
    """Runs a build and tells its steps; a failure shows its last lines."""
    last: collections.deque[str] = collections.deque(maxlen=LAST_LINES)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout or ():
            last.append(line)
            if " STEP " in line:
                report(f"  {line.strip()[:96]}")
    if process.returncode:
        raise BuildError(f"`{' '.join(command[:2])}` failed:\n{''.join(last)}")
