# SPDX-License-Identifier: Apache-2.0
"""A pool as its user sees it: apply, wait until Ready, change a value, read what the tuner did."""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from demo.kubectl import Tools, await_condition
from demo.stages import ToldOnce
from headway_api.names import METRICS_PORT, POOL_LABEL

KIND = "inferencepools.serving.headway.dev"


def apply(tools: Tools, manifest: Path) -> None:
    tools.kubectl("apply", "-f", str(manifest))


def read(tools: Tools, name: str) -> dict[str, Any]:
    return tools.get(KIND, name)


def condition(pool: dict[str, Any], kind: str) -> dict[str, Any] | None:
    conditions = pool.get("status", {}).get("conditions", ())
    return next((entry for entry in conditions if entry["type"] == kind), None)


def await_ready(
    tools: Tools, name: str, seconds: float, tell: Callable[[str], None] = lambda words: None
) -> dict[str, Any]:
    """The pool once Ready is True for its current generation; `tell` hears each new reason."""
    told = ToldOnce(tell)

    def look() -> dict[str, Any] | None:
        pool = read(tools, name)
        ready = condition(pool, "Ready")
        if ready is None:
            return None
        told(f"{ready['reason']}: {ready['message']}")
        current = ready.get("observedGeneration") == pool["metadata"]["generation"]
        return pool if ready["status"] == "True" and current else None

    return await_condition(f"pool {name} Ready", look, seconds)


@dataclass(frozen=True)
class Pod:
    name: str
    uid: str
    restarts: int


def pods(tools: Tools, name: str) -> list[Pod]:
    found = tools.get("pods", "-l", f"{POOL_LABEL}={name}")["items"]
    return [
        Pod(
            pod["metadata"]["name"],
            pod["metadata"]["uid"],
            sum(state["restartCount"] for state in pod["status"].get("containerStatuses", ())),
        )
        for pod in found
        if "deletionTimestamp" not in pod["metadata"]
    ]


def patch_budget(tools: Tools, name: str, tokens: int) -> None:
    """Set maxBatchTotalTokens of the first workload, as `kubectl patch` does it."""
    path = "/spec/workloads/0/batching/maxBatchTotalTokens"
    patch = [{"op": "replace", "path": path, "value": tokens}]
    tools.kubectl("patch", KIND, name, "--type", "json", "-p", json.dumps(patch))


def seconds_until_engine_has(
    tools: Tools, name: str, workload: str, tokens: int, change: Callable[[], None]
) -> float:
    """Seconds from before `change` until the engine's own metrics show the new budget."""
    with _engine_metrics(tools, name) as metrics:
        begin = time.monotonic()
        change()
        await_condition(
            f"{tokens} tokens in force in the engine",
            lambda: _budget_in_force(metrics(), workload) == tokens or None,
            seconds=120,
            interval=0.02,
        )
        return time.monotonic() - begin


def budget_in_engine(tools: Tools, name: str, workload: str) -> int | None:
    with _engine_metrics(tools, name) as metrics:
        return _budget_in_force(metrics(), workload)


@contextmanager
def _engine_metrics(tools: Tools, name: str) -> Iterator[Callable[[], str]]:
    """Reads /metrics of the pool's only pod."""
    [pod] = pods(tools, name)
    with (
        tools.port_forward(f"pod/{pod.name}", METRICS_PORT) as url,
        httpx.Client(base_url=url, timeout=5) as http,
    ):
        yield lambda: http.get("/metrics").text


def _budget_in_force(exposition: str, workload: str) -> int | None:
    for line in exposition.splitlines():
        if not line.startswith("headway_knob_value{"):
            continue
        labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
        if labels["workload"] == workload and labels["knob"] == "maxBatchTotalTokens":
            return int(float(line.rsplit(" ", 1)[1]))
    return None


def tuner_changes(pool: dict[str, Any]) -> list[dict[str, Any]]:
    """History entries of the tuner that moved a value, oldest first."""
    history = pool.get("status", {}).get("autotune", {}).get("history", ())
    return [entry for entry in history if entry["action"] in ("Increase", "Decrease")]


def effective_budget(pool: dict[str, Any], workload: str) -> int | None:
    for entry in pool.get("status", {}).get("workloads", ()):
        if entry["name"] == workload:
            value: int | None = entry.get("effective", {}).get("maxBatchTotalTokens")
            return value
    return None


def capacity(pool: dict[str, Any]) -> int | None:
    """KV tokens of the smallest replica, once Prometheus has scraped one."""
    tokens: int | None = pool.get("status", {}).get("engine", {}).get("kvCacheCapacityTokens")
    return tokens
