# SPDX-License-Identifier: Apache-2.0
"""The newest runtime file, while it is refused: how the operator learns of it."""

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from headway_api import metric_names
from headway_server.metrics.families import Families
from headway_server.runtime_watch import Rejection


class RejectionCollector(Collector):
    def __init__(self, model: str, rejection: Callable[[], Rejection | None]) -> None:
        self._families = Families({"model": model})
        self._rejection = rejection

    def collect(self) -> Iterator[Metric]:
        rejection = self._rejection()
        yield self._families.gauge(
            metric_names.RUNTIME_CONFIG_REJECTED,
            "1 while the newest runtime file is refused.",
            ("revision", "field"),
            [((rejection.revision, rejection.field), 1)] if rejection else [],
        )
