# SPDX-License-Identifier: Apache-2.0
import pytest

from tests.chart.helm import Manifest, render


@pytest.fixture(scope="package")
def objects() -> list[Manifest]:
    """What a plain `helm install` creates."""
    return render()
