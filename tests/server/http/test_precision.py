# SPDX-License-Identifier: Apache-2.0
"""The flags of precision on their way to the runner, in the words of the API."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from headway_server import json_logs, loading, process
from headway_server.__main__ import main
from headway_server.model_folder import ModelFolder
from headway_server.options import ServeOptions, StartError
from headway_server.runner import torch_runner

# Importing torch takes minutes on a machine that is busy with something else.
pytestmark = pytest.mark.timeout(600)


class Asked(Exception):
    """What the runner was asked for."""

    def __init__(self, **asked: Any) -> None:
        super().__init__()
        self.asked = asked


def options(monkeypatch: pytest.MonkeyPatch, *flags: str) -> ServeOptions:
    taken: list[ServeOptions] = []

    def take(options: ServeOptions) -> int:
        taken.append(options)
        return 0

    monkeypatch.setattr(process, "serve", take)
    monkeypatch.setattr(json_logs, "configure_logging", lambda: None)
    monkeypatch.setattr(os, "_exit", lambda code: None)
    monkeypatch.setattr(sys, "argv", ["headway-server", "serve", "--model", "x", *flags])
    main()
    return taken[0]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], ("None", "Auto")),
        (["--quantization", "int8", "--kv-cache-dtype", "fp8"], ("Int8", "Fp8")),
    ],
)
def test_precision_reaches_the_runner(
    monkeypatch: pytest.MonkeyPatch, flags: list[str], words: tuple[str, str]
) -> None:
    def load_torch_runner(folder: ModelFolder, **asked: Any) -> None:
        raise Asked(**asked)

    folder = ModelFolder(Path("x"), {}, {}, 100, 10, frozenset())
    monkeypatch.setattr(loading, "locate", lambda *_: folder)
    monkeypatch.setattr(torch_runner, "load_torch_runner", load_torch_runner)
    with pytest.raises(StartError) as failure:
        loading.load(options(monkeypatch, *flags), lambda line: None)
    asked = failure.value.__cause__
    assert isinstance(asked, Asked)
    assert (asked.asked["quantization"], asked.asked["kv_cache_dtype"]) == words
