# SPDX-License-Identifier: Apache-2.0
"""Two runs that want the same outcome: the second waits, says so, and comes after the first."""

import threading
from pathlib import Path

from cluster.exclusion import alone


def test_the_second_says_that_it_waits_and_comes_after_the_first(tmp_path: Path) -> None:
    lock, order, told = tmp_path / "new" / "lock", list[str](), threading.Event()

    def second() -> None:
        with alone(lock, told.set):
            order.append("second")

    other = threading.Thread(target=second)
    with alone(lock, lambda: order.append("waited for nobody")):
        other.start()
        assert told.wait(30)
        order.append("first")
    other.join(30)
    assert order == ["first", "second"]
