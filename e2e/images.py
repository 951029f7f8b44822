# SPDX-License-Identifier: Apache-2.0
"""Builds Headway's images and hands them to the cluster: `python e2e/images.py build|load|values`.

An unchanged image is neither built nor exported again, and a pod never runs code that its tag does
not name. Every image ends as an OCI folder in the cache; nothing here needs a registry, and nothing
is pushed to one.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from functools import partial

import smollm2
from cluster.binaries import cache_dir
from cluster.exclusion import alone
from image_builders import Builder, BuildError, choose_builder
from image_sources import IMAGES, REPOSITORY, ROOT, Image


def build(images: list[Image], base: str | None) -> None:
    builder = choose_builder(base, cache_dir(), say)
    for image in images:
        started = time.monotonic()
        outcome = build_one(image, builder)
        say(f"{image.reference()}: {outcome}, {time.monotonic() - started:.1f} s")


def build_one(image: Image, builder: Builder) -> str:
    """Builds and exports an image unless its folder already holds exactly this content."""
    if image.is_model and not smollm2.folder().is_dir():
        ensure_model()
    made_of = [image.reference(), image.content()]
    if not image.is_model:
        made_of.append(builder.base_identity)
    record = image.folder / "made-of"
    waiting = partial(say, f"{image.name}: another run is building it, waiting")
    with alone(image.folder.with_suffix(".lock"), waiting):
        if record.exists() and record.read_text().split() == made_of:
            return "unchanged"
        record.unlink(missing_ok=True)
        seconds = _build_and_export(image, builder)
        if image.content() != made_of[1]:
            raise BuildError(f"{image.name}: its sources changed during the build: build again")
        record.write_text(" ".join(made_of))
        return f"built in {seconds[0]:.1f} s, exported in {seconds[1]:.1f} s"


def load(images: list[Image]) -> None:
    """Hands the exported images to the cluster, which skips those that it already holds."""
    for image in images:
        reference, record = image.reference(), image.folder / "made-of"
        if not record.exists() or record.read_text().split()[:2] != [reference, image.content()]:
            raise BuildError(f"{reference} is not built: run `python e2e/images.py build`")
        if not (image.folder / "index.json").exists():
            raise BuildError(
                f"{reference} is in Docker: hand it to your cluster from there,"
                f" for instance with `kind load docker-image {reference}`"
            )
    command = [sys.executable, "-m", "cluster", "load-image", *(str(i.folder) for i in images)]
    if subprocess.run(command, cwd=ROOT / "e2e", check=False).returncode:
        raise BuildError("the cluster did not take the images in; its words are above")


def values() -> str:
    """The chart's values that name exactly the images of this tree, as JSON, which is YAML too."""

    def reference(name: str) -> dict[str, str]:
        repository = f"{REPOSITORY}/{name}"
        return {"registry": "", "repository": repository, "tag": IMAGES[name].tag()}

    document = {
        "image": reference("control-plane"),
        "serverImage": reference("server"),
        "prometheus": {"image": reference("prometheus")},
    }
    return json.dumps(document, indent=2)


def ensure_model() -> None:
    say(f"{smollm2.NAME}: fetched and converted, once")
    script = ROOT / "e2e" / "smollm2.py"
    if subprocess.run([sys.executable, str(script)], stdout=sys.stderr, check=False).returncode:
        raise BuildError(f"{smollm2.NAME} was not converted; the words of {script.name} are above")


def _build_and_export(image: Image, builder: Builder) -> tuple[float, float]:
    started, reference = time.monotonic(), image.reference()
    arguments = {"NAME": smollm2.NAME} if image.is_model else {}
    dockerfile = ROOT / "images" / image.dockerfile
    builder.build(dockerfile, image.context, reference, arguments, say)
    built = time.monotonic()
    say(f"{reference}: built in {built - started:.1f} s; exporting")
    image.folder.mkdir(parents=True, exist_ok=True)
    builder.export(reference, image.folder)
    builder.forget_other_tags(reference)
    return built - started, time.monotonic() - built


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    chosen = options.image or list(IMAGES.values())
    try:
        if options.command == "build":
            build(chosen, options.base)
        elif options.command == "load":
            load(chosen)
        else:
            print(values())
    except BuildError as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(
        prog="images",
        description="Builds Headway's images without a registry and hands them to the cluster.",
    )
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")
    building = commands.add_parser("build", help="build and export what has changed")
    building.add_argument(
        "--base",
        default=os.environ.get("HEADWAY_BASE"),
        metavar="IMAGE",
        help="a Debian image with Python 3.11 to build on (default: $HEADWAY_BASE; else buildah"
        " builds on one made with mmdebstrap, docker on the one the Dockerfiles name)",
    )
    loading = commands.add_parser("load", help="hand the exported images to the cluster")
    printing = commands.add_parser("values", help="print chart values that name these images")
    for command in (building, loading):
        command.add_argument(
            "image",
            nargs="*",
            type=_image,
            metavar="IMAGE",
            help=f"{', '.join(IMAGES)} (default: all)",
        )
    printing.set_defaults(image=[])
    return root


def _image(name: str) -> Image:
    if name not in IMAGES:
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(IMAGES)}")
    return IMAGES[name]


if __name__ == "__main__":
    sys.exit(main())
