# SPDX-License-Identifier: Apache-2.0
"""Ask Prometheus about one window of one pool, and doubt the answer.

Whatever is missing, old, partial or torn ends as a `Gap`, never as a smaller number: a replica
that was not scraped must not look like one that broke no objective.
"""

import asyncio
from collections.abc import Awaitable

from headway_autotune.measurements import Measurements, assemble
from headway_autotune.observation import Defect, Gap, Observation, Window
from headway_autotune.pool import TunedPool
from headway_autotune.queries import PoolQueries
from headway_operator.prometheus import MetricsUnavailable, Prometheus, Sample

STALE_SCRAPES = 3


def stale_seconds(scrape_interval: float) -> float:
    """Two intervals, and a third for the scrape itself and for clocks that differ."""
    return STALE_SCRAPES * scrape_interval


async def observe(
    prometheus: Prometheus, pool: TunedPool, window: Window, scrape_interval: float
) -> Observation:
    """Never raises for what the provider does: that is a gap too."""
    try:
        measured = await _ask(prometheus, pool, window, scrape_interval)
    except MetricsUnavailable as error:
        return Observation(window, gap=Gap(Defect.PROVIDER_UNREACHABLE, str(error)))
    return assemble(pool, window, measured, scrape_interval)


async def _ask(
    prometheus: Prometheus, pool: TunedPool, window: Window, scrape_interval: float
) -> Measurements:
    queries = PoolQueries(pool.namespace, pool.name, window, stale_seconds(scrape_interval))
    warm = window.start - pool.autotune.warmup_seconds

    def ask(promql: str, at: float = window.end) -> Awaitable[list[Sample]]:
        return prometheus.query(promql, at=at)

    objectives = {
        (objective.metric, objective.percentile)
        for workload in pool.workloads
        for objective in workload.objectives
    }
    vectors = {
        "warm": ask(queries.loaded(), warm),
        "start": ask(queries.snapshot(), window.start),
        "end": ask(queries.snapshot()),
        "resets": ask(queries.resets()),
        "scrapes": ask(queries.scrapes()),
        "reserved_mean": ask(queries.reserved_mean()),
        "reserved_peak": ask(queries.reserved_peak()),
        "waiting_mean": ask(queries.waiting_mean()),
        "kv_used_mean": ask(queries.kv_used_mean()),
    }
    quantiles = {key: ask(queries.quantile(*key)) for key in objectives}
    answers = await asyncio.gather(*vectors.values(), *quantiles.values())
    return Measurements(
        **dict(zip(vectors, answers, strict=False)),
        quantiles=dict(zip(quantiles, answers[len(vectors) :], strict=True)),
    )
