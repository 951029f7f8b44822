# SPDX-License-Identifier: Apache-2.0
"""Scrapes of pools that never ran, as an OpenMetrics text that a real Prometheus takes in.

A tape is one series: a value for each moment, or None where that scrape saw nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

SCRAPE = 5
Tape = Callable[[float], float | None]
Series = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class Scrapes:
    """Every pool is scraped from `begin` to `end`, both Unix seconds, every SCRAPE seconds."""

    begin: int
    end: int

    def text(self, pools: Mapping[str, Mapping[Series, Tape]]) -> str:
        lines = [line for pool, tapes in pools.items() for line in self._lines(pool, tapes)]
        return "\n".join([*lines, "# EOF", ""])

    def _lines(self, pool: str, tapes: Mapping[Series, Tape]) -> Iterator[str]:
        for (metric, labels), tape in tapes.items():
            text = ",".join(f'{key}="{value}"' for key, value in labels)
            for moment in range(self.begin, self.end + 1, SCRAPE):
                value = tape(moment)
                if value is not None:
                    yield f'{metric}{{namespace="team-a",pool="{pool}",{text}}} {value} {moment}'


def series(metric: str, pod: str, **labels: str) -> Series:
    return metric, (("pod", pod), *labels.items())


def constant(value: float) -> Tape:
    return lambda moment: value


def rising(since: float, per_second: float, first: float = 0.0) -> Tape:
    """Whole numbers, as a counter of requests has them."""
    return lambda moment: float(int(first + max(0.0, moment - since) * per_second))


def before(moment_of_end: float, tape: Tape) -> Tape:
    return lambda moment: tape(moment) if moment < moment_of_end else None


def after(moment_of_start: float, tape: Tape) -> Tape:
    return lambda moment: tape(moment) if moment >= moment_of_start else None


def thinned(keep_every: int, tape: Tape) -> Tape:
    return lambda moment: tape(moment) if moment // SCRAPE % keep_every == 0 else None
