# SPDX-License-Identifier: Apache-2.0
"""What holds a queue back is read from the scheduler's own counts."""

from typing import Any

import pytest

from headway_autotune.binding import Binding, binding
from tests.autotune.given import sample

FREE = {"waiting": 0.0, "blocked": {}, "reserved_mean": 18_000.0}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"blocked": {"budget": 10, "gate": 9}}, Binding.BUDGET),
        ({"blocked": {"budget": 10, "kv": 10}}, Binding.BUDGET),
        ({"blocked": {"budget": 9, "gate": 10}}, Binding.GATE),
        ({"blocked": {"budget": 9, "kv": 10}}, Binding.KV),
        ({"blocked": {"prefill_budget": 1}}, Binding.PREFILL_BUDGET),
        ({"blocked": {"limit": 7}}, Binding.LIMIT),
        ({"blocked": {"a reason of a newer server": 7}, "reserved_peak": 0.0}, Binding.NOTHING),
        ({"blocked": {}, "waiting": 2.0, "reserved_peak": 19_500.0}, Binding.BUDGET),
        ({"blocked": {}, "waiting": 2.0, "reserved_peak": 18_500.0}, Binding.NOTHING),
        (FREE | {"reserved_peak": 20_000.0}, Binding.NOTHING),
        (FREE | {"reserved_mean": 1_000.0}, Binding.NOTHING),
    ],
)
def test_binding(changes: dict[str, Any], expected: Binding) -> None:
    assert binding(sample(**changes)) is expected
