# SPDX-License-Identifier: Apache-2.0
"""The tuner's only I/O: every tick, evaluate the pools whose window has ended.

Crash-only. Nothing is remembered here from one tick to the next, so a restart costs nothing and
a second tuner does no more than repeat the first. One pool's failure never touches another.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from headway_api.names import TUNER_MANAGER
from headway_api.workloadclass import WorkloadClassSpec
from headway_autotune import decide, report
from headway_autotune.announce import announcements, event_manifest
from headway_autotune.decision import Decision
from headway_autotune.logs import decision_fields
from headway_autotune.metrics import Key, TunerMetrics
from headway_autotune.observation import Defect, Gap, Observation
from headway_autotune.observe import observe, stale_seconds
from headway_autotune.pool import TunedPool, read_pool
from headway_operator.kube import EVENTS, INFERENCEPOOLS, WORKLOADCLASSES, KubeApi, KubeError
from headway_operator.prometheus import Prometheus

log = logging.getLogger(__name__)

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TunerConfig:
    """`namespaces` empty: all of the cluster's."""

    namespaces: Sequence[str] = ()
    tick_seconds: float = 5.0
    scrape_interval_seconds: float = 5.0


class Tuner:
    def __init__(
        self,
        kube: KubeApi,
        providers: Mapping[str, Prometheus],
        metrics: TunerMetrics,
        config: TunerConfig,
        clock: Callable[[], float],
    ) -> None:
        self._kube = kube
        self._providers = providers
        self._metrics = metrics
        self._config = config
        self._clock = clock

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await self.tick()
            except KubeError as error:
                log.warning("the pools could not be listed: %s", error)
            try:
                await asyncio.wait_for(stop.wait(), self._config.tick_seconds)
            except TimeoutError:
                continue

    async def tick(self) -> None:
        classes = _class_specs(await self._kube.list(WORKLOADCLASSES))
        pools = await self._pools()
        await asyncio.gather(*(self._visit(manifest, classes) for manifest in pools))
        self._metrics.keep_only({_key(manifest) for manifest in pools})

    async def _pools(self) -> list[Manifest]:
        namespaces = self._config.namespaces or (None,)
        listed = [await self._kube.list(INFERENCEPOOLS, namespace) for namespace in namespaces]
        return [
            manifest
            for manifests in listed
            for manifest in manifests
            if "deletionTimestamp" not in manifest["metadata"]
        ]

    async def _visit(self, manifest: Manifest, classes: Mapping[str, WorkloadClassSpec]) -> None:
        namespace, name = _key(manifest)
        try:
            await self._tune(read_pool(manifest, classes))
        except (KubeError, ValidationError) as error:
            self._metrics.failed(namespace, name)
            log.warning("pool %s/%s: %s", namespace, name, error)
        except Exception:
            self._metrics.failed(namespace, name)
            log.exception("pool %s/%s: the evaluation failed", namespace, name)

    async def _tune(self, pool: TunedPool) -> None:
        now = self._clock()
        if pool.autotune.mode == "Disabled":
            self._metrics.forget(pool.namespace, pool.name)
            document = report.disabled_document(pool, now)
            if document is not None:
                await self._write(document)
            return
        self._metrics.evaluated(pool, pool.last_evaluated)
        settle = stale_seconds(self._config.scrape_interval_seconds)
        if now < decide.due_at(pool, settle):
            return
        decision = await self._decide(pool, now, settle)
        await self._write(report.status_document(pool, decision))
        self._metrics.decided(pool, decision)
        log.info("decision", extra={"fields": decision_fields(pool, decision)})
        await self._announce(pool, decision)

    async def _decide(self, pool: TunedPool, now: float, settle: float) -> Decision:
        hold = decide.objection(pool, now, settle)
        if hold is not None:
            return decide.decide_unobserved(pool, hold, now)
        return decide.decide(pool, await self._observe(pool, now), now)

    async def _observe(self, pool: TunedPool, now: float) -> Observation:
        window = decide.window_ending(pool, now)
        provider = self._providers.get(pool.provider)
        if provider is None:
            known = ", ".join(sorted(self._providers))
            text = f"No metrics provider is named {pool.provider}; known: {known}."
            return Observation(window, gap=Gap(Defect.PROVIDER_UNKNOWN, text))
        return await observe(provider, pool, window, self._config.scrape_interval_seconds)

    async def _write(self, document: dict[str, Any]) -> None:
        await self._kube.apply_status(INFERENCEPOOLS, document, manager=TUNER_MANAGER)

    async def _announce(self, pool: TunedPool, decision: Decision) -> None:
        """The status holds the decision already; an event that cannot be written is let go."""
        for announcement in announcements(pool, decision):
            try:
                await self._kube.create(EVENTS, event_manifest(pool, announcement, decision.time))
            except KubeError as error:
                log.warning("pool %s/%s: event lost: %s", pool.namespace, pool.name, error)


def _class_specs(manifests: Sequence[Manifest]) -> dict[str, WorkloadClassSpec]:
    """A class that cannot be read is left out: its workloads then have no objectives."""
    specs = {}
    for manifest in manifests:
        name = manifest["metadata"]["name"]
        try:
            specs[name] = WorkloadClassSpec.model_validate(manifest.get("spec") or {})
        except ValidationError as error:
            log.warning("WorkloadClass %s: %s", name, error)
    return specs


def _key(manifest: Manifest) -> Key:
    meta = manifest["metadata"]
    return meta["namespace"], meta["name"]
