# SPDX-License-Identifier: Apache-2.0
import json
import tarfile
from pathlib import Path

import pytest

from cluster import containerd, images
from cluster.failure import ClusterError

NAME = "localhost/tool:1"


def write(path: Path, content: bytes = b"program") -> images.Image:
    return images.write_archive(path, NAME, {"/bin/tool": content}, ["/bin/tool"], "amd64")


def test_an_archive_says_its_name_and_digest(tmp_path: Path) -> None:
    written = write(tmp_path / "a.tar")
    assert images.read_image(tmp_path / "a.tar") == written
    assert written.name == NAME


def test_a_folder_reads_like_its_archive(tmp_path: Path) -> None:
    written = write(tmp_path / "a.tar")
    with tarfile.open(tmp_path / "a.tar") as archive:
        archive.extractall(tmp_path / "folder", filter="data")
    assert images.read_image(tmp_path / "folder") == written


def test_the_digest_follows_the_content(tmp_path: Path) -> None:
    first, again = write(tmp_path / "a.tar"), write(tmp_path / "b.tar")
    other = write(tmp_path / "c.tar", b"another program")
    assert first == again
    assert other.digest != first.digest


def test_the_layer_holds_executable_files(tmp_path: Path) -> None:
    write(tmp_path / "a.tar")
    with tarfile.open(tmp_path / "a.tar") as archive:
        archive.extractall(tmp_path / "folder", filter="data")
    blobs = tmp_path / "folder" / "blobs" / "sha256"
    index = json.loads((tmp_path / "folder" / "index.json").read_text())
    manifest_digest = index["manifests"][0]["digest"].removeprefix("sha256:")
    manifest = json.loads((blobs / manifest_digest).read_text())
    layer = blobs / manifest["layers"][0]["digest"].removeprefix("sha256:")
    with tarfile.open(layer) as files:
        member = files.getmember("bin/tool")
        assert member.mode == 0o755
        assert member.size == len(b"program")


def test_something_else_is_refused_with_the_command_that_makes_an_archive(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    for source in (tmp_path / "notes.txt", tmp_path / "missing.tar", tmp_path):
        with pytest.raises(ClusterError, match="buildah push"):
            images.read_image(source)


@pytest.mark.parametrize(
    ("manifests", "message"),
    [
        ([], "holds 0 images"),
        ([{"digest": "sha256:1"}, {"digest": "sha256:2"}], "holds 2 images"),
        ([{"digest": "sha256:1"}], "full name"),
        (
            [
                {
                    "digest": "sha256:1",
                    "annotations": {"org.opencontainers.image.ref.name": "latest"},
                }
            ],
            "full name",
        ),
    ],
)
def test_an_archive_without_one_named_image_is_refused(
    manifests: list[dict[str, object]], message: str
) -> None:
    with pytest.raises(ClusterError, match=message):
        images.parse_index({"manifests": manifests}, Path("x.tar"))


def test_image_list_of_containerd() -> None:
    table = (
        "REF TYPE DIGEST SIZE PLATFORMS LABELS\n"
        "localhost/tool:1 application/vnd.oci.image.manifest.v1+json sha256:abcd 1.0 KiB linux -\n"
    )
    assert containerd.parse_image_list(table) == {"localhost/tool:1": "sha256:abcd"}
