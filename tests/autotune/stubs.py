# SPDX-License-Identifier: Apache-2.0
"""A cluster in memory and a Prometheus that always shows the same busy window."""

import copy
import json
from collections.abc import Mapping
from typing import Any

import httpx

from headway_operator.kube import INFERENCEPOOLS, WORKLOADCLASSES, KubeApi, KubeError, Resource
from tests.autotune.given import NOW, REVISION, TTFT, moment

Manifest = dict[str, Any]


class StubKube(KubeApi):
    """Lists what it holds; keeps what is written to it, and merges a status as the server would."""

    def __init__(self, *pools: Manifest, classes: tuple[Manifest, ...] = ()) -> None:
        self.pools = {pool["metadata"]["name"]: pool for pool in pools}
        self.classes = list(classes)
        self.applied: list[Manifest] = []
        self.events: list[Manifest] = []
        self.managers: set[str] = set()
        self.broken: Mapping[str, KubeError] = {}
        self.events_broken: KubeError | None = None

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> list[Manifest]:
        if resource is WORKLOADCLASSES:
            return self.classes
        assert resource is INFERENCEPOOLS
        found = copy.deepcopy(list(self.pools.values()))
        return [p for p in found if namespace in (None, p["metadata"]["namespace"])]

    async def apply_status(
        self, resource: Resource, manifest: Manifest, *, manager: str
    ) -> Manifest:
        name = manifest["metadata"]["name"]
        if name in self.broken:
            raise self.broken[name]
        assert manifest["metadata"]["uid"] == self.pools[name]["metadata"]["uid"]
        self.applied.append(manifest)
        self.managers.add(manager)
        self._merge(self.pools[name]["status"], manifest["status"])
        return self.pools[name]

    async def create(self, resource: Resource, manifest: Manifest) -> Manifest:
        if self.events_broken:
            raise self.events_broken
        self.events.append(manifest)
        return manifest

    def status(self, name: str = "support") -> Manifest:
        status: Manifest = self.pools[name]["status"]
        return status

    def condition(self, kind: str, name: str = "support") -> tuple[str, str]:
        found = next(c for c in self.status(name)["conditions"] if c["type"] == kind)
        return found["status"], found["reason"]

    @staticmethod
    def _merge(status: Manifest, change: Manifest) -> None:
        for key, identity in (("conditions", "type"), ("workloads", "name")):
            old = {item[identity]: item for item in status.get(key, [])}
            for item in change.get(key, []):
                old[item[identity]] = {**old.get(item[identity], {}), **item}
            status[key] = list(old.values())
        status["autotune"] = change["autotune"]


def pool_manifest(name: str = "support", **autotune: Any) -> Manifest:
    """One replica, one workload `chat` with a TTFT objective, everything in order."""
    return {
        "metadata": {"namespace": "team-a", "name": name, "uid": f"uid-{name}", "generation": 3},
        "spec": {
            "model": {"name": "m"},
            "engine": {"maxInputTokens": 4096, "maxTotalTokens": 8192},
            "workloads": [
                {
                    "name": "chat",
                    "className": "chat",
                    "slo": {"objectives": [TTFT.model_dump(by_alias=True)]},
                }
            ],
            "autotune": {"mode": "Auto", **autotune},
        },
        "status": {
            "observedGeneration": 3,
            "readyReplicas": 1,
            "engine": {"kvCacheCapacityTokens": 100_000},
            "runtimeConfig": {
                "revision": REVISION,
                "lastAppliedTime": moment(NOW - 3600).isoformat(),
            },
            "workloads": [{"name": "chat", "effective": {"maxBatchTotalTokens": 20_000}}],
            "conditions": [
                _condition("Available", "True"),
                _condition("Progressing", "False"),
                _condition("RuntimeConfigSynced", "True"),
                _condition("MetricsAvailable", "Unknown"),
                _condition("SLOMet", "Unknown"),
                _condition("Tuning", "Unknown"),
            ],
        },
    }


def _condition(kind: str, status: str) -> Manifest:
    since = moment(NOW - 7200).isoformat()
    return {
        "type": kind,
        "status": status,
        "reason": "Pending",
        "message": "",
        "observedGeneration": 3,
        "lastTransitionTime": since,
    }


class StubPrometheus:
    """Answers every query of a window as the HTTP API does. `met` of 200 requests are in time."""

    def __init__(self, met: int = 120) -> None:
        self.met = met
        self.down = False
        self.queries: list[str] = []

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(self._handle))

    def _handle(self, request: httpx.Request) -> httpx.Response:
        form = dict(httpx.QueryParams(request.content.decode()))
        self.queries.append(form["query"])
        if self.down:
            raise httpx.ConnectError("connection refused")
        at = float(form["time"])
        result: list[Manifest] = [
            {"metric": {"pod": "a"} | labels, "value": [at, str(value)]}
            for labels, value in self._vector(form["query"], at)
        ]
        data = {"resultType": "vector", "result": result}
        return httpx.Response(200, content=json.dumps({"status": "success", "data": data}))

    def _vector(self, query: str, at: float) -> list[tuple[dict[str, str], float]]:
        chat = {"workload": "chat"}
        if query.startswith("last_over_time") and "capacity" in query:
            return [({"__name__": "headway_kv_tokens", "state": "capacity"}, 100_000)]
        if query.startswith("last_over_time"):
            return self._snapshot(windows=(at - NOW) / 120)
        if query.startswith("count_over_time"):
            return [({}, 24)]
        if "headway_reserved_tokens" in query:
            return [(chat, 19_000)]
        if "headway_waiting_requests" in query:
            return [(chat, 4)]
        if 'state="reserved"' in query:
            return [({}, 20_000)]
        if query.startswith("histogram_quantile"):
            return [(chat, 2.5)]
        return []

    def _snapshot(self, *, windows: float) -> list[tuple[dict[str, str], float]]:
        def named(name: str, value: float, **labels: str) -> tuple[dict[str, str], float]:
            return {"__name__": f"headway_{name}", **labels}, value

        slo = {"workload": "chat", "objective": TTFT.label}
        blocked = {"workload": "chat", "reason": "budget"}
        budget = {"workload": "chat", "knob": "maxBatchTotalTokens"}
        return [
            named("slo_requests_total", 500 + self.met * windows, met="true", **slo),
            named("slo_requests_total", 900 + (200 - self.met) * windows, met="false", **slo),
            named("admission_blocked_total", 7000 + 700 * windows, **blocked),
            named("requests_total", 3000 + 200 * windows, workload="chat", outcome="length"),
            named("kv_tokens", 100_000, state="capacity"),
            named("knob_value", 20_000, **budget),
            named("runtime_config_info", 1, revision=REVISION),
        ]
