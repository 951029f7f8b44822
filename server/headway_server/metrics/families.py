# SPDX-License-Identifier: Apache-2.0
"""Metric families whose samples all begin with the same labels, such as the model's name."""

from collections.abc import Iterable, Mapping

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    UntypedMetricFamily,
)

from headway_server.metrics.histogram import Histogram

Samples = Iterable[tuple[tuple[str, ...], float]]


class Families:
    """A sample is `(values of the labels, value)`; a family without labels has one, with `()`."""

    def __init__(self, common: Mapping[str, str]) -> None:
        self._names = tuple(common)
        self._values = tuple(common.values())

    def gauge(self, name: str, text: str, labels: tuple[str, ...], samples: Samples) -> Metric:
        family = GaugeMetricFamily(name, text, labels=self._names + labels)
        for values, value in samples:
            family.add_metric(self._values + values, value)
        return family

    def counter(self, name: str, text: str, labels: tuple[str, ...], samples: Samples) -> Metric:
        """The exposition name ends in `_total`, whether or not `name` does."""
        family = CounterMetricFamily(name, text, labels=self._names + labels)
        for values, value in samples:
            family.add_metric(self._values + values, value)
        return family

    def untyped(self, name: str, text: str, labels: tuple[str, ...], samples: Samples) -> Metric:
        family = UntypedMetricFamily(name, text, labels=self._names + labels)
        for values, value in samples:
            family.add_metric(self._values + values, value)
        return family

    def histogram(
        self,
        name: str,
        text: str,
        labels: tuple[str, ...],
        samples: Iterable[tuple[tuple[str, ...], Histogram]],
    ) -> Metric:
        family = HistogramMetricFamily(name, text, labels=self._names + labels)
        for values, histogram in samples:
            family.add_metric(self._values + values, histogram.buckets, histogram.sum)
        return family
