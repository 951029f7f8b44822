# SPDX-License-Identifier: Apache-2.0
"""Percentiles, throughput and objective attainment of a finished run. Pure; no I/O.

Failed requests count as misses of every objective and never enter a latency percentile.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headway_bench.timing import RequestTiming

PERCENTILES = (50, 95, 99)


@dataclass(frozen=True, slots=True)
class Objective:
    """At least `percentile` % of the requests have `metric` (TTFT, TPOT or E2E) at most this."""

    metric: str
    percentile: int
    threshold_milliseconds: int

    @classmethod
    def parse(cls, text: str) -> "Objective":
        """Read `METRIC:PERCENTILE:MILLISECONDS`, e.g. `TTFT:95:800`."""
        try:
            metric, percentile, threshold = text.split(":")
            objective = cls(metric.upper(), int(percentile), int(threshold))
        except ValueError:
            raise ValueError(
                f"objective {text!r}: expected METRIC:PERCENTILE:MILLISECONDS, e.g. TTFT:95:800"
            ) from None
        if objective.metric not in _LATENCY:
            raise ValueError(f"objective {text!r}: metric must be one of {', '.join(_LATENCY)}")
        if not 0 < objective.percentile < 100 or objective.threshold_milliseconds <= 0:
            raise ValueError(f"objective {text!r}: percentile within 1..99, milliseconds above 0")
        return objective

    def met(self, timing: RequestTiming) -> bool:
        latency = _LATENCY[self.metric](timing)
        if timing.error is not None:
            return False
        return latency is None or latency * 1000 <= self.threshold_milliseconds


_LATENCY = {
    "TTFT": lambda timing: timing.ttft,
    "TPOT": lambda timing: timing.tpot,
    "E2E": lambda timing: timing.end_to_end,
}


def percentile(values: Sequence[float], rank: int) -> float | None:
    """Nearest-rank percentile: always a value that was really measured."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(rank / 100 * len(ordered)) - 1)]


def attainment(timings: Iterable[RequestTiming], objective: Objective) -> float | None:
    verdicts = [objective.met(timing) for timing in timings]
    return sum(verdicts) / len(verdicts) if verdicts else None


def summarise(
    timings: Sequence[RequestTiming], seconds: float, objectives: Sequence[Objective]
) -> dict[str, Any]:
    """Figures of one run as a JSON-ready mapping; latencies in milliseconds, rates per second."""
    served = [timing for timing in timings if timing.error is None]
    output_tokens = sum(timing.output_tokens for timing in served)
    return {
        "requests": len(timings),
        "failed": len(timings) - len(served),
        "errors": _count(timing.error for timing in timings if timing.error is not None),
        "seconds": round(seconds, 3),
        "requestsPerSecond": round(len(served) / seconds, 3),
        "outputTokensPerSecond": round(output_tokens / seconds, 2),
        "promptTokens": sum(timing.prompt_tokens for timing in served),
        "outputTokens": output_tokens,
        "ttftMilliseconds": _milliseconds([t.ttft for t in served]),
        "tpotMilliseconds": _milliseconds([t.tpot for t in served]),
        "itlMilliseconds": _milliseconds([gap for t in served for gap in t.inter_token_gaps]),
        "e2eMilliseconds": _milliseconds([t.end_to_end for t in served]),
        "objectives": [
            {**asdict(objective), "attainment": attainment(timings, objective)}
            for objective in objectives
        ],
    }


def _milliseconds(seconds: Sequence[float | None]) -> dict[str, float | None]:
    known = [value for value in seconds if value is not None]
    ranked = {f"p{rank}": percentile(known, rank) for rank in PERCENTILES}
    return {name: None if v is None else round(v * 1000, 1) for name, v in ranked.items()}


def _count(errors: Iterable[str | None]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for error in errors:
        counts[str(error)] = counts.get(str(error), 0) + 1
    return counts
