# SPDX-License-Identifier: Apache-2.0
"""Makes and reads images without a registry.

An image of a few static programs needs no builder: it is one layer and two JSON documents, written
here as an OCI archive. Larger images come from buildah, as an archive or a folder.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from .failure import ClusterError

OCI = "application/vnd.oci.image"
NAME_ANNOTATIONS = ("io.containerd.image.name", "org.opencontainers.image.ref.name")


@dataclass(frozen=True)
class Image:
    """What an archive or folder holds: its full name and the digest that names its content."""

    name: str
    digest: str


def write_archive(
    target: Path, name: str, files: Mapping[str, bytes], command: Sequence[str], architecture: str
) -> Image:
    """An OCI archive of executable files on nothing; the same input gives the same digest."""
    layer = _layer(files)
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {"Entrypoint": list(command), "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    blobs: list[bytes] = []

    def add(media_type: str, content: bytes) -> dict[str, Any]:
        blobs.append(content)
        return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}

    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.manifest.v1+json",
        "config": add(f"{OCI}.config.v1+json", _encoded(config)),
        "layers": [add(f"{OCI}.layer.v1.tar", layer)],
    }
    entry = add(f"{OCI}.manifest.v1+json", _encoded(manifest))
    entry["annotations"] = dict.fromkeys(NAME_ANNOTATIONS, name)
    with tarfile.open(target, "w") as archive:
        _add(archive, "oci-layout", _encoded({"imageLayoutVersion": "1.0.0"}))
        _add(archive, "index.json", _encoded({"schemaVersion": 2, "manifests": [entry]}))
        for blob in blobs:
            _add(archive, f"blobs/sha256/{_digest(blob).removeprefix('sha256:')}", blob)
    return Image(name, str(entry["digest"]))


def read_image(source: Path) -> Image:
    """Name and digest of the one image in an OCI archive or folder."""
    try:
        index = json.loads(_read_index(source))
    except (OSError, KeyError, tarfile.TarError, ValueError) as error:
        raise ClusterError(
            f"{source} is neither an OCI archive nor an OCI folder ({error}): "
            f"make one with `buildah push NAME oci-archive:FILE:NAME`"
        ) from error
    return parse_index(index, source)


def parse_index(index: dict[str, Any], source: Path) -> Image:
    manifests = index.get("manifests", [])
    if len(manifests) != 1:
        raise ClusterError(f"{source} holds {len(manifests)} images: one is expected")
    annotations = manifests[0].get("annotations", {})
    names = [annotations[key] for key in NAME_ANNOTATIONS if key in annotations]
    if not names or "/" not in names[0]:
        raise ClusterError(
            f"{source} does not say its image's full name: "
            f"push it with one, `buildah push NAME oci-archive:FILE:localhost/NAME:TAG`"
        )
    return Image(names[0], manifests[0]["digest"])


def _read_index(source: Path) -> bytes:
    for entry, content in entries(source):
        if entry.name.removeprefix("./") == "index.json":
            return content.read()
    raise KeyError("index.json")


def entries(source: Path) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    """The files of an OCI archive or folder, each as an open tar entry."""
    if source.is_dir():
        for path in sorted(source.rglob("*")):
            if path.is_file():
                entry = tarfile.TarInfo(str(path.relative_to(source)))
                entry.size = path.stat().st_size
                with path.open("rb") as content:
                    yield entry, content
        return
    with tarfile.open(source) as archive:
        for member in archive:
            opened = archive.extractfile(member)
            if opened is not None:
                with opened:
                    yield member, opened


def entry_sizes(source: Path) -> list[tuple[str, int]]:
    return [(entry.name, entry.size) for entry, _ in entries(source)]


def _layer(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for path, content in sorted(files.items()):
            _add(layer, path.lstrip("/"), content, mode=0o755)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    archive.addfile(member, io.BytesIO(content))


def _encoded(document: dict[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
