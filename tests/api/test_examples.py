# SPDX-License-Identifier: Apache-2.0
"""What users are told to apply is accepted by a real API server, without an unknown field."""

import re
from pathlib import Path

import pytest
import yaml

from tests.api_server import ApiServer, Manifest

ROOT = Path(__file__).parents[2]


def manifests() -> list[tuple[str, Manifest]]:
    files = [(path.name, path.read_text()) for path in sorted(ROOT.glob("examples/*.yaml"))]
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    texts = [*files, *(("README.md", block) for block in blocks)]
    return [(name, each) for name, text in texts for each in yaml.safe_load_all(text)]


@pytest.mark.parametrize(("name", "manifest"), manifests(), ids=lambda part: str(part)[:20])
def test_the_example_is_accepted(api_server: ApiServer, name: str, manifest: Manifest) -> None:
    manifest["metadata"].pop("namespace", None)
    answer = api_server.create("inferencepools", manifest, dry_run=True)
    assert answer.status_code == 201, f"{name}: {answer.text}"
