# SPDX-License-Identifier: Apache-2.0
"""Stages of a long job, printed with their seconds as they begin and end."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Stages:
    """Prints each stage and remembers its seconds for the summary at the end."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        say(f"\n==> {title}")
        begin = time.monotonic()
        yield
        self.seconds[title] = time.monotonic() - begin
        say(f"    done in {self.seconds[title]:.1f} s")

    def summary(self) -> str:
        width = max(map(len, self.seconds), default=0)
        rows = [f"  {title:<{width}}  {spent:7.1f} s" for title, spent in self.seconds.items()]
        total = f"  {'total':<{width}}  {sum(self.seconds.values()):7.1f} s"
        return "\n".join([*rows, total])


class ToldOnce:
    """Passes a sentence on only when it differs from the last one."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._last = ""

    def __call__(self, words: str) -> None:
        if words != self._last:
            self._last = words
            self._tell(words)


def say(text: str, end: str = "\n") -> None:
    print(text, end=end, flush=True, file=sys.stdout)
