# SPDX-License-Identifier: Apache-2.0
"""Kubernetes Events about pools, aggregated: one object per pool and reason, with a count.

Events are told to people and never read back by the operator, so losing one is better than
failing a reconcile over it.
"""

import hashlib
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from headway_api.names import API_VERSION, INFERENCE_POOL, OPERATOR_MANAGER
from headway_operator.errors import Gone, KubeError
from headway_operator.kube import KubeApi
from headway_operator.pool import Pool
from headway_operator.resources import EVENTS, Manifest
from headway_operator.transitions import PoolEvent

logger = logging.getLogger(__name__)

MESSAGE_LIMIT = 1024


class Recorder:
    def __init__(self, api: KubeApi, now: Callable[[], datetime]) -> None:
        self._api = api
        self._now = now

    async def record(self, pool: Pool, event: PoolEvent) -> None:
        logger.info("%s/%s: %s: %s", pool.namespace, pool.name, event.reason, event.message)
        try:
            await self._write(pool, event)
        except KubeError as error:
            logger.warning("an Event could not be written: %s", error)

    async def _write(self, pool: Pool, event: PoolEvent) -> None:
        moment = self._now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        name = event_name(pool, event)
        try:
            live = await self._api.get(EVENTS, name, pool.namespace)
        except Gone:
            await self._api.create(EVENTS, build_event(pool, event, moment))
            return
        again = {
            "count": live.get("count", 1) + 1,
            "lastTimestamp": moment,
            "message": event.message[:MESSAGE_LIMIT],
        }
        await self._api.merge(EVENTS, name, pool.namespace, again)


def event_name(pool: Pool, event: PoolEvent) -> str:
    digest = hashlib.sha256(f"{pool.uid}/{event.reason}".encode()).hexdigest()
    return f"{pool.name}.{digest[:16]}"


def build_event(pool: Pool, event: PoolEvent, moment: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event_name(pool, event), "namespace": pool.namespace},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": INFERENCE_POOL,
            "namespace": pool.namespace,
            "name": pool.name,
            "uid": pool.uid,
        },
        "type": event.reason.type,
        "reason": str(event.reason),
        "message": event.message[:MESSAGE_LIMIT],
        "count": 1,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "source": {"component": OPERATOR_MANAGER},
        "reportingComponent": OPERATOR_MANAGER,
        "reportingInstance": OPERATOR_MANAGER,
    }
