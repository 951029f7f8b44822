# SPDX-License-Identifier: Apache-2.0
"""`python -m headway_api`: writes the CRDs' YAML from the models, or checks that it is current."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from headway_api.crd import Kind, crd_manifest
from headway_api.kinds import KINDS

FOLDERS = (Path("crds"), Path("charts/headway/files/crds"))
CHECKOUT = Path(__file__).parents[2]
HEADER = (
    "# SPDX-License-Identifier: Apache-2.0\n"
    "# Written by `python -m headway_api` from crds/headway_api; change the models instead.\n"
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m headway_api", description=__doc__)
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; exit 1 and name the files that differ from the models",
    )
    parser.add_argument(
        "--root", type=Path, default=CHECKOUT, help="checkout to work in (default: this one)"
    )
    options = parser.parse_args(arguments)
    stale = [(path, text) for path, text in _files(options.root) if _read(path) != text]
    if options.check:
        for path, _ in stale:
            print(f"{path} differs from the models: run `python -m headway_api`", file=sys.stderr)
        return 1 if stale else 0
    for path, text in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(f"wrote {path}")
    return 0


def crd_yaml(kind: Kind) -> str:
    manifest = yaml.safe_dump(crd_manifest(kind), sort_keys=False, width=100, allow_unicode=True)
    return HEADER + manifest


def _files(root: Path) -> Iterator[tuple[Path, str]]:
    for kind in KINDS:
        text = crd_yaml(kind)
        for folder in FOLDERS:
            yield root / folder / kind.file_name, text


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
