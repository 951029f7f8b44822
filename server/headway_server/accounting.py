# SPDX-License-Identifier: Apache-2.0
"""What a request's latencies were, and which objectives they kept.

Pure. The tuner judges by these verdicts, so a definition here is a promise: TPOT is MLPerf's
(last token - first token) / (tokens - 1); a request that was refused or failed is a miss of every
objective; a client's own mistake, or its leaving, is no sample at all.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from headway_api.objectives import Metric, Objective


class Outcome(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"
    DEADLINE = "deadline"
    REFUSED = "refused"
    INVALID = "invalid"


SERVED = frozenset({Outcome.STOP, Outcome.LENGTH})
MISSED = frozenset({Outcome.ERROR, Outcome.DEADLINE, Outcome.REFUSED})


@dataclass(frozen=True, slots=True)
class Latencies:
    """Seconds; empty where a request has no sample (TPOT and ITL need two tokens)."""

    ttft: tuple[float, ...] = ()
    tpot: tuple[float, ...] = ()
    itl: tuple[float, ...] = ()
    queue_time: tuple[float, ...] = ()
    e2e: tuple[float, ...] = ()

    def of(self, metric: Metric) -> tuple[float, ...]:
        match metric:
            case "TTFT":
                return self.ttft
            case "TPOT":
                return self.tpot
            case "ITL":
                return self.itl
            case "E2E":
                return self.e2e
            case "QueueTime":
                return self.queue_time


@dataclass(slots=True)
class Timeline:
    """When a request's tokens came, by the server's monotonic clock."""

    arrival: float
    prompt_tokens: int = 0
    max_new_tokens: int = 0
    queue_seconds: float | None = None
    generated_tokens: int = 0
    _token_times: list[float] = field(default_factory=list)

    def note(self, now: float, tokens: int) -> None:
        """Tokens of one step; they count as one gap, since they came together."""
        if tokens:
            self.generated_tokens += tokens
            self._token_times.append(now)

    def latencies(self) -> Latencies:
        times = self._token_times
        if not times:
            return Latencies()
        spread = self.generated_tokens - 1
        return Latencies(
            ttft=(times[0] - self.arrival,),
            tpot=((times[-1] - times[0]) / spread,) if spread else (),
            itl=tuple(later - earlier for earlier, later in pairwise(times)),
            queue_time=() if self.queue_seconds is None else (self.queue_seconds,),
            e2e=(times[-1] - self.arrival,),
        )


@dataclass(frozen=True, slots=True)
class Account:
    """One request at its end."""

    workload: str
    outcome: Outcome
    prompt_tokens: int = 0
    generated_tokens: int = 0
    latencies: Latencies = Latencies()
    max_new_tokens: int = 0


def verdicts(account: Account, objectives: Iterable[Objective]) -> Iterator[tuple[str, bool]]:
    """`(objective label, met)` once per sample: per request, or per gap where the metric is ITL."""
    for objective in objectives:
        label = objective.label
        if account.outcome in MISSED:
            yield label, False
        elif account.outcome in SERVED:
            bound = objective.threshold_milliseconds / 1000
            for seconds in account.latencies.of(objective.metric):
                yield label, seconds <= bound
