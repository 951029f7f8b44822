# SPDX-License-Identifier: Apache-2.0
"""The four WorkloadClasses the operator creates when they are absent.

Starting points after MLPerf's server limits. A class that exists already is never changed: it is
the admin's.
"""

from collections.abc import Iterator
from typing import Any

from headway_api.autotune import TuningObjective
from headway_api.batching import Batching, Bounds
from headway_api.names import API_VERSION, WORKLOAD_CLASS
from headway_api.objectives import Objective, Percentile, ServiceLevel
from headway_api.ranges import RatioRange
from headway_api.workloadclass import WorkloadClassSpec


def _profile(
    description: str,
    priority: int,
    latency: list[Objective],
    ratio_start: int,
    ratio_max: int,
    objective: TuningObjective = "MaximizeThroughput",
) -> WorkloadClassSpec:
    return WorkloadClassSpec(
        description=description,
        priority=priority,
        slo=ServiceLevel(objectives=latency) if latency else None,
        batching=Batching(waiting_served_ratio_percent=ratio_start),
        bounds=Bounds(waiting_served_ratio_percent=RatioRange(min=0, max=ratio_max)),
        objective=objective,
    )


def _streaming(percentile: Percentile, ttft: int, tpot: int) -> list[Objective]:
    return [
        Objective(metric="TTFT", percentile=percentile, threshold_milliseconds=ttft),
        Objective(metric="TPOT", percentile=percentile, threshold_milliseconds=tpot),
    ]


BUILTIN_CLASSES: dict[str, WorkloadClassSpec] = {
    "chat": _profile("Streamed answers a person waits for.", 100, _streaming(95, 1000, 50), 0, 200),
    "priority": _profile(
        "Paid or interactive-critical requests.",
        500,
        _streaming(99, 500, 30),
        0,
        100,
        "MinimizeLatency",
    ),
    "agent": _profile(
        "Many short tool calls with long shared prefixes.", 200, _streaming(95, 2000, 40), 10, 300
    ),
    "batch": _profile("Offline work without a latency objective.", -100, [], 120, 500),
}


def builtin_class_manifests() -> Iterator[dict[str, Any]]:
    for name, spec in BUILTIN_CLASSES.items():
        yield {
            "apiVersion": API_VERSION,
            "kind": WORKLOAD_CLASS,
            "metadata": {"name": name},
            "spec": spec.model_dump(mode="json", by_alias=True, exclude_none=True),
        }
