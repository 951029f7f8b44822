# SPDX-License-Identifier: Apache-2.0
"""Turns what happens in the cluster into keys in the queue, and keeps the workers going.

Events only say where to look. A listing of all pools from time to time makes up for whatever a
watch has lost, and tells when the watch has gone deaf.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime

import httpx
from prometheus_client import CollectorRegistry

from headway_api.names import API_VERSION, INFERENCE_POOL
from headway_operator.classes import install_builtin_classes
from headway_operator.errors import KubeError
from headway_operator.kube import KubeApi, OnRequest
from headway_operator.metrics import Metrics
from headway_operator.options import Options
from headway_operator.pool import PoolKey
from headway_operator.prometheus import Prometheus
from headway_operator.reconcile import Reconciler
from headway_operator.recorder import Recorder
from headway_operator.resources import INFERENCEPOOLS, Manifest, Manifests
from headway_operator.sightings import Sightings, key_of
from headway_operator.targets import TargetServer
from headway_operator.workqueue import Outcome, WorkQueue

logger = logging.getLogger(__name__)

POD_DEBOUNCE_SECONDS = 1.0
DRAIN_SECONDS = 10.0
STUCK_SECONDS = 300.0
DEAF_SECONDS = 120.0
RESYNC_JITTER = (0.8, 1.2)
RESYNC_SPREAD = 0.1
RESYNC_MISSES = 3.0


class Unhealthy(Exception):
    """The process should be restarted; the text says why."""


class Controller:
    def __init__(
        self,
        options: Options,
        registry: CollectorRegistry,
        *,
        on_request: OnRequest = lambda verb, resource, status: None,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.options = options
        self._uniform = uniform
        self._queue: WorkQueue[PoolKey] = WorkQueue(uniform=uniform)
        self._metrics = Metrics(registry, queue_depth=lambda: len(self._queue))
        self._on_request = on_request
        self._sightings = Sightings()
        self._tasks: list[asyncio.Task[None]] = []
        self._resynced = time.monotonic()

    async def start(self) -> None:
        self._api = await KubeApi.connect(
            user_agent="headway-operator", on_request=self._count_request
        )
        self._http = httpx.AsyncClient()
        providers = {
            name: Prometheus(url, self._http) for name, url in self.options.providers.items()
        }
        self._reconciler = Reconciler(
            self._api,
            providers,
            Recorder(self._api, _now),
            self.options,
            now=_now,
            monotonic=time.monotonic,
        )
        await install_builtin_classes(self._api)
        options = self.options
        self._targets = TargetServer(self._api, options.watch_namespaces, options.targets_port)
        await self._targets.start()
        work = self._queue.run(self._handle, workers=self.options.workers)
        self._tasks = [asyncio.create_task(work), asyncio.create_task(self._resync_for_ever())]

    async def stop(self) -> None:
        """Let passes that have begun come to their end; a pass cut off is no harm either."""
        workers, resync = self._tasks
        resync.cancel()
        self._queue.forget_delayed()
        await self._queue.drain(DRAIN_SECONDS)
        workers.cancel()
        await asyncio.gather(workers, resync, return_exceptions=True)
        await self._targets.stop()
        await self._http.aclose()
        await self._api.close()

    def pool_seen(self, event: str | None, body: Manifest) -> None:
        """`event` is None for what a watch lists when it begins."""
        key = key_of(body)
        changed = self._sightings.note(body)
        if event == "DELETED":
            self._sightings.forget(key)
        if changed or event in {None, "DELETED"}:
            self._queue.add(key)

    def child_seen(self, body: Manifest) -> None:
        if key := owner_of(body):
            self._queue.add(key)

    def pod_seen(self, label: str | None, body: Manifest) -> None:
        """Pods are owned by ReplicaSets, so the label leads to the pool; they come in bursts."""
        if label:
            key = PoolKey(body["metadata"]["namespace"], label)
            self._queue.add_after(key, POD_DEBOUNCE_SECONDS)

    def class_seen(self, name: str) -> None:
        for key in self._sightings.using(name):
            self._queue.add(key)

    def check(self) -> None:
        """Raise Unhealthy when passes hang, listings fail or the watch is deaf."""
        now = time.monotonic()
        if any(task.done() for task in self._tasks):
            raise Unhealthy("a background task has ended")
        if (seconds := self._queue.longest_handling()) > STUCK_SECONDS:
            raise Unhealthy(f"a pass has been going on for {seconds:.0f} s")
        if now - self._resynced > RESYNC_MISSES * self.options.resync_seconds:
            raise Unhealthy(f"pools could not be listed for {now - self._resynced:.0f} s")
        if (seconds := self._sightings.deaf_for(now)) > DEAF_SECONDS:
            raise Unhealthy(f"the watch has missed a change for {seconds:.0f} s")

    async def _handle(self, key: PoolKey) -> Outcome:
        began = time.monotonic()
        outcome = await self._reconciler.reconcile(key)
        self._metrics.count_reconcile(outcome, time.monotonic() - began)
        return outcome

    async def _resync_for_ever(self) -> None:
        while True:
            jitter = self._uniform(*RESYNC_JITTER)
            await asyncio.sleep(self.options.resync_seconds * jitter)
            try:
                await self._resync()
            except KubeError as error:
                logger.warning("pools could not be listed: %s", error)

    async def _resync(self) -> None:
        listed = await self._list_pools()
        self._resynced = time.monotonic()
        self._metrics.note_resync()
        self._sightings.compare(listed, self._resynced)
        spread = self.options.resync_seconds * RESYNC_SPREAD
        for manifest in listed:
            self._queue.add_after(key_of(manifest), self._uniform(0.0, spread))

    async def _list_pools(self) -> Manifests:
        namespaces = self.options.watch_namespaces or (None,)
        pages = [await self._api.list(INFERENCEPOOLS, namespace) for namespace in namespaces]
        return [manifest for page in pages for manifest in page]

    def _count_request(self, verb: str, resource: str, code: int) -> None:
        self._metrics.count_request(verb, resource, code)
        self._on_request(verb, resource, code)


def owner_of(child: Manifest) -> PoolKey | None:
    meta = child["metadata"]
    for owner in meta.get("ownerReferences") or []:
        kind = (owner["apiVersion"], owner["kind"])
        if owner.get("controller") and kind == (API_VERSION, INFERENCE_POOL):
            return PoolKey(meta["namespace"], owner["name"])
    return None


def _now() -> datetime:
    return datetime.now(UTC)
