# SPDX-License-Identifier: Apache-2.0
"""Keeps torch to one thread, since the tests share the machine, and makes the real model once."""

import os
from pathlib import Path

import pytest

os.environ["OMP_NUM_THREADS"] = "1"


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The folder of SmolLM2-135M-Instruct."""
    from smollm2 import ensure

    return ensure()
