# SPDX-License-Identifier: Apache-2.0
"""The tuner's loop: what it writes, when, and what it does when something is broken."""

import asyncio
import json
import logging
from dataclasses import dataclass, field
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from headway_autotune.logs import JsonFormatter
from headway_autotune.loop import Tuner, TunerConfig
from headway_autotune.metrics import TunerMetrics
from headway_operator.kube import Conflict, Retry
from headway_operator.prometheus import Prometheus
from tests.autotune.given import NOW
from tests.autotune.stubs import StubKube, StubPrometheus, pool_manifest

URL = "http://prometheus"


@dataclass
class World:
    kube: StubKube
    provider: StubPrometheus = field(default_factory=StubPrometheus)
    config: TunerConfig = field(default_factory=TunerConfig)
    now: float = NOW
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        self.metrics = TunerMetrics(self.registry, lambda: self.now)

    async def tick(self, seconds: float = 0.0) -> None:
        """A tick of a tuner that has just been started."""
        self.now += seconds
        async with self.provider.client() as http:
            await self.tuner({"default": Prometheus(URL, http)}).tick()

    def tuner(self, providers: dict[str, Prometheus]) -> Tuner:
        return Tuner(self.kube, providers, self.metrics, self.config, lambda: self.now)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(
            name, {"namespace": "team-a", "pool": "support", **labels}
        )


def history(kube: StubKube, name: str = "support") -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = kube.status(name)["autotune"]["history"]
    return entries


async def test_a_breached_objective_becomes_a_recommendation_with_its_story() -> None:
    kube = StubKube(pool_manifest())
    world = World(kube)
    await world.tick()
    [chat] = kube.status()["workloads"]
    assert chat["recommended"] == {"maxBatchTotalTokens": 24_000}
    assert chat["effective"] == {"maxBatchTotalTokens": 20_000}
    assert chat["objectives"] == [
        {
            "metric": "TTFT",
            "percentile": 95,
            "thresholdMilliseconds": 1000,
            "observedMilliseconds": 2500,
            "met": "False",
        }
    ]
    assert (chat["sampleCount"], chat["kvUsagePercent"]) == (200, 20)
    [entry] = history(kube)
    assert (entry["action"], entry["from"], entry["to"]) == ("Increase", 20_000, 24_000)
    assert entry["parameter"] == "maxBatchTotalTokens"
    assert entry["time"] == chat["lastEvaluationTime"] == "2027-01-15T08:00:00Z"
    assert kube.condition("MetricsAvailable") == ("True", "Fresh")
    assert kube.condition("SLOMet") == ("False", "Breached")
    assert kube.condition("Tuning") == ("True", "Evaluating")
    assert kube.managers == {"headway-autotune"}


async def test_events_tell_of_the_move_and_of_the_breach_once() -> None:
    kube = StubKube(pool_manifest(cooldownSeconds=0, warmupSeconds=0))
    world = World(kube)
    await world.tick()
    assert [event["reason"] for event in kube.events] == ["TuningRecommended", "SLOBreached"]
    assert "chat: maxBatchTotalTokens 20000 -> 24000" in kube.events[0]["message"]
    assert "60.0 % of 200 requests" in kube.events[0]["message"]
    assert kube.events[0]["involvedObject"]["uid"] == "uid-support"
    await world.tick(seconds=120)
    assert len(kube.events) == 2
    assert len(history(kube)) == 1


async def test_a_pool_is_left_alone_until_its_next_window_has_ended() -> None:
    kube = StubKube(pool_manifest())
    world = World(kube)
    await world.tick()
    asked = len(world.provider.queries)
    await world.tick(seconds=119)
    assert len(kube.applied) == 1
    assert len(world.provider.queries) == asked
    await world.tick(seconds=1)
    assert len(kube.applied) == 2


async def test_a_window_begins_after_the_values_in_force_have_settled() -> None:
    kube = StubKube(pool_manifest(warmupSeconds=60))
    world = World(kube)
    await world.tick()
    kube.status()["runtimeConfig"]["lastAppliedTime"] = "2027-01-15T08:00:10Z"
    await world.tick(seconds=10 + 60 + 15 + 120 - 1)
    assert len(kube.applied) == 1
    await world.tick(seconds=1)
    assert len(kube.applied) == 2
    assert kube.condition("Tuning")[1] == "Cooldown"


async def test_a_restart_continues_from_the_status_alone() -> None:
    kube = StubKube(pool_manifest())
    await World(kube).tick()
    again = World(kube, now=NOW + 300)
    kube.status()["workloads"][0]["effective"] = {"maxBatchTotalTokens": 24_000}
    await again.tick()
    assert [entry["action"] for entry in history(kube)] == ["Increase"]
    assert kube.condition("Tuning") == ("True", "Cooldown")
    assert kube.status()["workloads"][0]["recommended"] == {"maxBatchTotalTokens": 24_000}


async def test_disabled_is_said_once_and_withdraws_the_recommendation() -> None:
    kube = StubKube(pool_manifest())
    world = World(kube)
    await world.tick()
    asked = len(world.provider.queries)
    kube.pools["support"]["spec"]["autotune"]["mode"] = "Disabled"
    await world.tick(seconds=5)
    await world.tick(seconds=500)
    assert kube.condition("Tuning") == ("False", "Disabled")
    assert len(kube.applied) == 2
    assert kube.applied[-1]["status"]["workloads"] == []
    assert len(history(kube)) == 1
    assert len(world.provider.queries) == asked
    assert world.value("headway_autotune_evaluation_age_seconds") is None


async def test_recommend_writes_the_same_recommendation() -> None:
    kube = StubKube(pool_manifest(mode="Recommend"))
    await World(kube).tick()
    assert kube.status()["workloads"][0]["recommended"] == {"maxBatchTotalTokens": 24_000}


async def test_without_prometheus_the_pool_holds_and_says_why_until_it_is_back() -> None:
    kube = StubKube(pool_manifest())
    world = World(kube)
    await world.tick()
    world.provider.down = True
    await world.tick(seconds=700)
    assert kube.condition("MetricsAvailable") == ("False", "ProviderUnreachable")
    assert kube.condition("SLOMet") == ("Unknown", "Pending")
    assert kube.condition("Tuning") == ("False", "BlockedByMetrics")
    [chat] = kube.applied[-1]["status"]["workloads"]
    assert chat["recommended"] == {"maxBatchTotalTokens": 24_000}
    assert chat["objectives"][0]["met"] == "Unknown"
    assert kube.events[-1]["reason"] == "MetricsUnavailable"
    assert "connection refused" in kube.events[-1]["message"]


async def test_a_provider_that_nobody_configured_is_named() -> None:
    pool = pool_manifest()
    pool["spec"]["metrics"] = {"providerName": "central"}
    kube = StubKube(pool)
    await World(kube).tick()
    assert kube.condition("MetricsAvailable") == ("False", "ProviderUnknown")
    tuning = next(c for c in kube.status()["conditions"] if c["type"] == "Tuning")
    assert tuning["message"] == "No metrics provider is named central; known: default."


async def test_a_pool_in_rollout_is_not_measured() -> None:
    pool = pool_manifest()
    pool["status"]["conditions"][1]["status"] = "True"
    kube = StubKube(pool)
    world = World(kube)
    await world.tick()
    assert world.provider.queries == []
    assert kube.condition("Tuning") == ("False", "BlockedByRollout")
    assert kube.condition("MetricsAvailable") == ("Unknown", "Pending")


async def test_one_pools_failure_never_stops_the_others(caplog: pytest.LogCaptureFixture) -> None:
    broken = pool_manifest("broken")
    broken["spec"]["workloads"] = "nonsense"
    kube = StubKube(pool_manifest("a"), broken, pool_manifest("conflicted"), pool_manifest("z"))
    kube.broken = {"conflicted": Conflict("the pool was replaced")}
    world = World(kube)
    await world.tick()
    assert {document["metadata"]["name"] for document in kube.applied} == {"a", "z"}
    assert "team-a/broken" in caplog.text
    assert "the pool was replaced" in caplog.text


async def test_an_event_that_cannot_be_written_is_let_go(caplog: pytest.LogCaptureFixture) -> None:
    kube = StubKube(pool_manifest())
    kube.events_broken = Retry("try again later")
    await World(kube).tick()
    assert len(kube.applied) == 1
    assert "try again later" in caplog.text


async def test_objectives_and_bounds_come_from_the_class_where_the_pool_sets_none() -> None:
    pool = pool_manifest()
    del pool["spec"]["workloads"][0]["slo"]
    given = {
        "metadata": {"name": "chat"},
        "spec": {
            "slo": {"objectives": [{"metric": "TTFT", "thresholdMilliseconds": 1000}]},
            "bounds": {"maxBatchTotalTokens": {"min": 8192, "max": 22_000}},
        },
    }
    unreadable = {"metadata": {"name": "odd"}, "spec": {"priority": "high"}}
    kube = StubKube(pool, classes=(unreadable, given))
    await World(kube).tick()
    assert kube.status()["workloads"][0]["recommended"] == {"maxBatchTotalTokens": 22_000}


async def test_only_the_watched_namespaces_are_tuned() -> None:
    other = pool_manifest("other")
    other["metadata"]["namespace"] = "team-b"
    leaving = pool_manifest("leaving")
    leaving["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    kube = StubKube(pool_manifest(), other, leaving)
    await World(kube, config=TunerConfig(namespaces=("team-a",))).tick()
    assert [document["metadata"]["name"] for document in kube.applied] == ["support"]


async def test_metrics_tell_of_the_decision_and_forget_a_pool_that_is_gone() -> None:
    world = World(StubKube(pool_manifest()))
    await world.tick()
    world.now += 42
    chat = {"workload": "chat"}
    moved = {"action": "Increase", "reason": "QueueBound"}
    assert world.value("headway_autotune_decisions_total", **chat, **moved) == 1
    assert world.value("headway_autotune_recommended_tokens", **chat) == 24_000
    assert world.value("headway_autotune_effective_tokens", **chat) == 20_000
    assert world.value("headway_autotune_evaluation_age_seconds") == 42
    objective = {"objective": "TTFT-p95-1000ms"}
    ratio = "headway_autotune_objective_headroom_ratio"
    assert world.value(ratio, **chat, **objective) == pytest.approx(0.60 - 0.95)
    world.kube.pools.clear()
    await world.tick()
    assert world.value("headway_autotune_recommended_tokens", **chat) is None
    assert world.value("headway_autotune_evaluation_age_seconds") is None


async def test_every_decision_is_one_json_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="headway_autotune.loop"):
        await World(StubKube(pool_manifest())).tick()
    [record] = [record for record in caplog.records if record.message == "decision"]
    line = json.loads(JsonFormatter().format(record))
    assert line["pool"] == "support"
    [chat] = line["workloads"]
    assert (chat["action"], chat["reason"], chat["to"]) == ("Increase", "QueueBound", 24_000)
    assert chat["objectives"] == [
        {"objective": "TTFT-p95-1000ms", "met": 120, "missed": 80, "standing": "Breached"}
    ]


async def test_the_loop_outlives_an_api_server_that_is_away_and_stops_when_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kube = StubKube(pool_manifest())
    world = World(kube, config=TunerConfig(tick_seconds=0.001))
    stop = asyncio.Event()
    listings = 0

    async def refuse(*args: object, **kwargs: object) -> list[dict[str, Any]]:
        nonlocal listings
        listings += 1
        if listings == 3:
            stop.set()
        raise Retry("the API server did not answer")

    kube.list = refuse  # type: ignore[method-assign]
    await world.tuner({}).run(stop)
    assert listings == 3
    assert "did not answer" in caplog.text
