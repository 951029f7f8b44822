# SPDX-License-Identifier: Apache-2.0
"""What a person sees while a cluster starts: a line for each stage and the seconds it took."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

LABEL_WIDTH = 34


@contextmanager
def stage(label: str) -> Iterator[None]:
    """The label at once, the time when the block is done."""
    started = time.monotonic()
    sys.stdout.write(f"  {label:<{LABEL_WIDTH}}")
    sys.stdout.flush()
    try:
        yield
    except BaseException:
        print("  failed", flush=True)
        raise
    print(f"{time.monotonic() - started:7.1f} s", flush=True)


def say(line: str) -> None:
    print(f"  {line}", flush=True)
