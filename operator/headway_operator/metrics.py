# SPDX-License-Identifier: Apache-2.0
"""The operator's own metrics. Labels never hold a pool's name: series must not grow with pools."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from headway_operator.workqueue import Done, Outcome


class Metrics:
    def __init__(self, registry: CollectorRegistry, *, queue_depth: Callable[[], float]) -> None:
        self._requests = Counter(
            "headway_operator_api_requests",
            "Requests to the Kubernetes API; code 0 is no answer.",
            ["verb", "resource", "code"],
            registry=registry,
        )
        self._reconciles = Counter(
            "headway_operator_reconcile", "Passes over a pool.", ["result"], registry=registry
        )
        self._seconds = Histogram(
            "headway_operator_reconcile_seconds", "Duration of a pass.", registry=registry
        )
        self._resync = Gauge(
            "headway_operator_resync_last_success_timestamp_seconds",
            "When all pools were last listed.",
            registry=registry,
        )
        depth = Gauge(
            "headway_operator_queue_depth", "Pools waiting or being handled.", registry=registry
        )
        depth.set_function(queue_depth)

    def count_request(self, verb: str, resource: str, code: int) -> None:
        self._requests.labels(verb, resource, str(code)).inc()

    def count_reconcile(self, outcome: Outcome, seconds: float) -> None:
        self._reconciles.labels("done" if isinstance(outcome, Done) else "failed").inc()
        self._seconds.observe(seconds)

    def note_resync(self) -> None:
        self._resync.set_to_current_time()
