# SPDX-License-Identifier: Apache-2.0
"""Waits for what another thread or process brings about, and says what it was that never came."""

import time
from collections.abc import Callable

WAIT_SECONDS = 60.0
POLL_SECONDS = 0.01


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"waited {WAIT_SECONDS:.0f} s for {what}"
        time.sleep(POLL_SECONDS)
