# SPDX-License-Identifier: Apache-2.0
"""The PromQL of one window of one pool. Text only.

Counts come from two snapshots, at the start and at the end of the window, and are subtracted here:
`increase()` extrapolates to the window's edges and so makes 4.7 requests of 4, and the raw samples
of a day-long window would be millions. `resets()` over the same span says whether a counter may be
subtracted. `last_over_time` bounds how old a snapshot may be: without it the lookback of five
minutes would hand out a dead pod's samples.
"""

from dataclasses import dataclass

from headway_api import metric_names as names
from headway_autotune.observation import Window

COUNTERS = (names.SLO_REQUESTS_TOTAL, names.ADMISSION_BLOCKED_TOTAL, names.REQUESTS_TOTAL)
GAUGES = (
    names.RESERVED_TOKENS,
    names.WAITING_REQUESTS,
    names.KV_TOKENS,
    names.KNOB_VALUE,
    names.RUNTIME_CONFIG_INFO,
)
HISTOGRAMS = {
    "TTFT": names.TTFT_SECONDS,
    "TPOT": names.TPOT_SECONDS,
    "ITL": names.ITL_SECONDS,
    "E2E": names.E2E_SECONDS,
    "QueueTime": names.QUEUE_TIME_SECONDS,
}


@dataclass(frozen=True, slots=True)
class PoolQueries:
    """`stale_seconds`: the age at which a sample is no longer taken for the present."""

    namespace: str
    pool: str
    window: Window
    stale_seconds: float

    def snapshot(self) -> str:
        """Newest sample of every series; evaluated at either edge of the window."""
        return f"last_over_time({self._series(COUNTERS + GAUGES)}[{_ms(self.stale_seconds)}])"

    def loaded(self) -> str:
        """Replicas that have a model in memory; evaluated before the window, for their age."""
        return f"last_over_time({self._capacity()}[{_ms(self.stale_seconds)}]) > 0"

    def resets(self) -> str:
        span = self.window.seconds + self.stale_seconds
        return f"resets({self._series(COUNTERS)}[{_ms(span)}]) > 0"

    def scrapes(self) -> str:
        return f"count_over_time({self._capacity()}[{self._span}])"

    def reserved_mean(self) -> str:
        return f"avg_over_time({self._series((names.RESERVED_TOKENS,))}[{self._span}])"

    def reserved_peak(self) -> str:
        return f"max_over_time({self._series((names.RESERVED_TOKENS,))}[{self._span}])"

    def waiting_mean(self) -> str:
        return f"avg_over_time({self._series((names.WAITING_REQUESTS,))}[{self._span}])"

    def kv_used_mean(self) -> str:
        used = self._series((names.KV_TOKENS,), 'state="reserved"')
        return f"avg_over_time({used}[{self._span}])"

    def quantile(self, metric: str, percentile: int) -> str:
        """Seconds by workload, interpolated: extrapolation cancels out in a quantile."""
        buckets = self._series((f"{HISTOGRAMS[metric]}_bucket",))
        rates = f"sum by (workload, le) (rate({buckets}[{self._span}]))"
        return f"histogram_quantile({percentile / 100}, {rates})"

    @property
    def _span(self) -> str:
        return _ms(self.window.seconds)

    def _capacity(self) -> str:
        return self._series((names.KV_TOKENS,), 'state="capacity"')

    def _series(self, metrics: tuple[str, ...], *matchers: str) -> str:
        """Namespace and pool are DNS labels, so nothing in them needs escaping."""
        name = f'__name__=~"{"|".join(metrics)}"'
        labels = (f'namespace="{self.namespace}"', f'pool="{self.pool}"', *matchers)
        return "{" + ",".join((name, *labels)) + "}"


def _ms(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
