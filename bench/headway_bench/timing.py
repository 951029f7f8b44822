# SPDX-License-Identifier: Apache-2.0
"""What one request looked like to its client, and the latencies that follow from it.

Pure values: whoever talks to a server fills in the instants, everything else is derived here,
so that every report of the bench speaks of the same quantities.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestTiming:
    """Instants in seconds of one monotonic clock; `intended` is when the request was due."""

    intended: float
    sent: float
    token_times: tuple[float, ...]
    finished: float
    prompt_tokens: int
    output_tokens: int
    error: str | None = None

    @property
    def ttft(self) -> float | None:
        """Seconds from the intended start to the first token: a late sender hides no queue."""
        return self.token_times[0] - self.intended if self.token_times else None

    @property
    def tpot(self) -> float | None:
        """Seconds per output token after the first (MLPerf); None for fewer than two tokens."""
        if self.output_tokens < 2 or not self.token_times:
            return None
        return (self.token_times[-1] - self.token_times[0]) / (self.output_tokens - 1)

    @property
    def inter_token_gaps(self) -> tuple[float, ...]:
        return tuple(
            after - before
            for before, after in zip(self.token_times, self.token_times[1:], strict=False)
        )

    @property
    def end_to_end(self) -> float:
        return self.finished - self.intended
