# SPDX-License-Identifier: Apache-2.0
"""What an image is made of decides its tag, and the chart's values name exactly that tag."""

import json
import shutil
from pathlib import Path

import pytest

import image_builders
import image_sources
from image_builders import BuildError, choose_builder, keep_only
from image_sources import IMAGES, ROOT, Image
from images import load, values
from tests.chart.helm import containers, render

NAME = "org.opencontainers.image.ref.name"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of its own with one image, made of a package and the project's table."""
    root = tmp_path / "tree"
    (root / "images").mkdir(parents=True)
    (root / "images" / "x.Dockerfile").write_text("FROM scratch\n")
    (root / "package").mkdir()
    (root / "package" / "code.py").write_text("a = 1\n")
    shutil.copy(ROOT / "pyproject.toml", root / "pyproject.toml")
    monkeypatch.setattr(image_sources, "ROOT", root)
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))
    return root


IMAGE = Image("x", "x.Dockerfile", ("pyproject.toml", "package"))


def test_a_change_of_the_code_changes_the_tag(tree: Path) -> None:
    before = IMAGE.tag()
    (tree / "package" / "code.py").write_text("a = 2\n")
    changed = IMAGE.tag()
    (tree / "package" / "code.py").rename(tree / "package" / "other.py")
    assert len({before, changed, IMAGE.tag()}) == 3


def test_a_change_of_the_dockerfile_changes_the_tag(tree: Path) -> None:
    before = IMAGE.tag()
    (tree / "images" / "x.Dockerfile").write_text("FROM scratch\nUSER 1\n")
    assert IMAGE.tag() != before


def test_what_does_not_reach_the_image_leaves_the_tag(tree: Path) -> None:
    before = IMAGE.tag()
    (tree / "package" / "__pycache__").mkdir()
    (tree / "package" / "__pycache__" / "code.pyc").write_bytes(b"x")
    (tree / "elsewhere.py").write_text("")
    with (tree / "pyproject.toml").open("a") as settings:
        settings.write("\n[tool.another]\nstrict = true\n")
    assert IMAGE.tag() == before


@pytest.mark.parametrize("image", [image for image in IMAGES.values() if not image.is_model])
def test_everything_copied_into_an_image_counts_for_its_tag(image: Image) -> None:
    lines = (ROOT / "images" / image.dockerfile).read_text().splitlines()
    copies = [line.split()[1:-1] for line in lines if line.startswith("COPY ")]
    from_tree = {path for copy in copies if not copy[0].startswith("--from") for path in copy}
    covered = {s for s in image.sources if any(Path(path).is_relative_to(s) for path in from_tree)}
    assert covered == set(image.sources)
    assert all(any(Path(path).is_relative_to(s) for s in covered) for path in from_tree)


def test_the_chart_takes_the_values_and_runs_these_images() -> None:
    rendered = containers(render(values=json.loads(values())))
    assert rendered["headway-operator"]["image"] == IMAGES["control-plane"].reference()
    assert rendered["headway-tuner"]["image"] == IMAGES["control-plane"].reference()
    assert rendered["headway-prometheus"]["image"] == IMAGES["prometheus"].reference()
    server = f"--server-image={IMAGES['server'].reference()}"
    assert server in rendered["headway-operator"]["args"]


def test_loading_what_is_not_built_says_what_to_run(tree: Path) -> None:
    with pytest.raises(BuildError, match=r"localhost/headway/x:\S+ is not built: run .* build"):
        load([IMAGE])


def test_an_older_build_is_not_loaded_in_place_of_the_tree(tree: Path) -> None:
    IMAGE.folder.mkdir(parents=True)
    (IMAGE.folder / "made-of").write_text(f"{IMAGE.reference()} {IMAGE.content()}")
    (tree / "package" / "code.py").write_text("a = 2\n")
    with pytest.raises(BuildError, match="is not built"):
        load([IMAGE])


def test_an_image_that_docker_keeps_is_handed_on_by_its_user(tree: Path) -> None:
    IMAGE.folder.mkdir(parents=True)
    (IMAGE.folder / "made-of").write_text(f"{IMAGE.reference()} {IMAGE.content()}")
    with pytest.raises(BuildError, match="kind load docker-image localhost/headway/x:"):
        load([IMAGE])


def test_a_machine_that_builds_no_images_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match=r"apt-get install .*buildah"):
        choose_builder(None, tmp_path, print)


def test_a_failed_step_shows_the_builders_last_words(tmp_path: Path) -> None:
    told: list[str] = []
    script = "echo '[1/1] STEP 1/2: FROM x'; echo 'no space left'; exit 3"
    with pytest.raises(BuildError, match="no space left"):
        image_builders._stream(["sh", "-c", script], told.append)
    assert told == ["  [1/1] STEP 1/2: FROM x"]


def oci_folder(folder: Path, images: dict[str, list[str]]) -> None:
    """An OCI folder with these images, each a name and the blobs of its layers."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    entries = []
    for name, layers in images.items():
        config, manifest = f"config-{name}", f"manifest-{name}"
        described = {
            "config": {"digest": f"sha256:{config}"},
            "layers": [{"digest": f"sha256:{layer}"} for layer in layers],
        }
        for blob in (config, *layers):
            (blobs / blob).write_text("")
        (blobs / manifest).write_text(json.dumps(described))
        entries.append({"digest": f"sha256:{manifest}", "annotations": {NAME: name}})
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": entries}))


def test_a_folder_keeps_the_newest_image_and_the_layers_it_shares(tmp_path: Path) -> None:
    oci_folder(tmp_path, {"old": ["base", "old-code"], "new": ["base", "new-code"]})
    keep_only(tmp_path, "new")
    left = {path.name for path in (tmp_path / "blobs" / "sha256").iterdir()}
    assert left == {"manifest-new", "config-new", "base", "new-code"}
    (entry,) = json.loads((tmp_path / "index.json").read_text())["manifests"]
    assert entry["annotations"][NAME] == "new"


def test_a_folder_without_the_image_is_left_as_it_is(tmp_path: Path) -> None:
    oci_folder(tmp_path, {"old": ["base"]})
    before = (tmp_path / "index.json").read_text()
    with pytest.raises(BuildError, match="does not hold new"):
        keep_only(tmp_path, "new")
    assert (tmp_path / "index.json").read_text() == before


def test_docker_builds_with_the_base_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for Docker tells with which words it was called."""
    said = tmp_path / "said"
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\necho "$@" >> {said}\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    builder = image_builders.Docker("debian-python:1")
    dockerfile = ROOT / "images" / "server.Dockerfile"
    builder.build(dockerfile, ROOT, "localhost/headway/server:1", {}, print)
    assert said.read_text().split() == [
        *("build", "--file", str(dockerfile), "--tag", "localhost/headway/server:1"),
        *("--build-arg", "BASE=debian-python:1", str(ROOT)),
    ]
