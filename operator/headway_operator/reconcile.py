# SPDX-License-Identifier: Apache-2.0
"""One pass over one pool: observe, decide, act, report.

It starts from a live read and remembers nothing that matters, so it may be cut off anywhere and
begun again by any later process. This is the only place where errors of the API are handled.
"""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime

from headway_api.names import API_VERSION, INFERENCE_POOL, OPERATOR_MANAGER
from headway_operator.acknowledgement import Acknowledgement, acknowledge, smallest_capacity
from headway_operator.act import Acted, act, announce_revision, drift, owned_by
from headway_operator.build.metadata import runtime_name
from headway_operator.conditions import judge, refuse
from headway_operator.decide import Decision, decide
from headway_operator.diagnosis import diagnose
from headway_operator.errors import Conflict, Denied, Gone, Retry
from headway_operator.facts import Facts
from headway_operator.kube import KubeApi
from headway_operator.observe import Observation, Replies, ask_replicas, observe
from headway_operator.options import Options
from headway_operator.pool import InvalidSpec, Pool, PoolKey, read_pool
from headway_operator.prometheus import Prometheus
from headway_operator.recorder import Recorder
from headway_operator.replicas import read_replicas, serving
from headway_operator.resources import CONFIGMAPS, DEPLOYMENTS, INFERENCEPOOLS, Manifest
from headway_operator.status import build_status, differs, refused_status
from headway_operator.transitions import transitions
from headway_operator.workqueue import Done, Failed, Outcome

logger = logging.getLogger(__name__)

ACKNOWLEDGEMENT_POLL_SECONDS = 2.0
SLOW_POLL_SECONDS = 30.0
IMPATIENT_SECONDS = 60.0


class Reconciler:
    """`now` gives the wall clock for times in status, `monotonic` paces the polling."""

    def __init__(
        self,
        api: KubeApi,
        providers: Mapping[str, Prometheus],
        recorder: Recorder,
        options: Options,
        *,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self._api = api
        self._providers = providers
        self._recorder = recorder
        self._options = options
        self._now = now
        self._monotonic = monotonic
        self._pending_since: dict[PoolKey, tuple[str, float]] = {}

    async def reconcile(self, key: PoolKey) -> Outcome:
        try:
            return await self._pass(key)
        except Retry as error:
            logger.warning("%s: %s", key, error)
            return Failed(at_least=error.after)
        except Gone:
            return Failed()
        except Conflict as error:
            logger.info("%s: %s", key, error)
            return Failed()
        except Denied as error:
            if error.namespace_terminating:
                return Done()
            logger.error("%s: %s", key, error)
            return Failed()

    async def _pass(self, key: PoolKey) -> Outcome:
        try:
            manifest = await self._api.get(INFERENCEPOOLS, key.name, key.namespace)
        except Gone:
            self._pending_since.pop(key, None)
            return Done()
        if manifest["metadata"].get("deletionTimestamp"):
            return Done()
        try:
            pool = read_pool(manifest)
            observation = await observe(self._api, pool)
            decision = self._decide(pool, observation)
        except InvalidSpec as error:
            return await self._refuse(manifest, str(error))
        acted = await act(self._api, pool, decision.children, observation.children)
        if acted.obstacle is None and decision.runtime:
            await announce_revision(self._api, observation.pods, decision.runtime.revision)
        return await self._report(manifest, pool, observation, decision, acted)

    def _decide(self, pool: Pool, observation: Observation) -> Decision:
        configmap = observation.children.get((CONFIGMAPS, runtime_name(pool)))
        return decide(pool, self._options, classes=observation.classes, live_configmap=configmap)

    async def _report(
        self,
        manifest: Manifest,
        pool: Pool,
        observation: Observation,
        decision: Decision,
        acted: Acted,
    ) -> Outcome:
        ready = serving(observation.pods)
        replies = await ask_replicas(self._providers, pool) if ready else Replies()
        facts = gather_facts(pool, observation, decision, acted, replies)
        live = manifest.get("status") or {}
        status = build_status(facts, judge(facts), live, self._now())
        changed = await self._write_status(manifest, status)
        told = transitions(live, status) if changed else []
        for event in (*drift(pool, acted.steps), *told):
            await self._recorder.record(pool, event)
        return self.next_visit(facts)

    async def _refuse(self, manifest: Manifest, message: str) -> Outcome:
        """Not looked at again before it is changed: the answer would be the same."""
        generation = manifest["metadata"]["generation"]
        live = manifest.get("status") or {}
        await self._write_status(
            manifest, refused_status(refuse(message), live, generation, self._now())
        )
        return Done()

    async def _write_status(self, manifest: Manifest, status: Manifest) -> bool:
        if not differs(manifest.get("status") or {}, status):
            return False
        meta = manifest["metadata"]
        identity = {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]}
        document = {
            "apiVersion": API_VERSION,
            "kind": INFERENCE_POOL,
            "metadata": identity,
            "status": status,
        }
        await self._api.apply_status(INFERENCEPOOLS, document, manager=OPERATOR_MANAGER)
        return True

    def next_visit(self, facts: Facts) -> Outcome:
        """Acknowledgements are polled for; everything else that may change causes an event."""
        key = PoolKey(facts.pool.namespace, facts.pool.name)
        ack, runtime = facts.acknowledgement, facts.decision.runtime
        if ack is None or runtime is None or not ack.pending:
            self._pending_since.pop(key, None)
        if facts.obstacle:
            return Failed()
        if ack is None or runtime is None:
            return Done()
        if facts.capacity != facts.pool.capacity:
            return Done(after=0.0)
        if ack.unreachable or ack.rejections:
            return Done(after=SLOW_POLL_SECONDS)
        if not ack.pending:
            return Done()
        revision, since = self._pending_since.get(key, ("", 0.0))
        if revision != runtime.revision:
            since = self._monotonic()
            self._pending_since[key] = (runtime.revision, since)
        patient = self._monotonic() - since < IMPATIENT_SECONDS
        return Done(after=ACKNOWLEDGEMENT_POLL_SECONDS if patient else SLOW_POLL_SECONDS)


def gather_facts(
    pool: Pool, observation: Observation, decision: Decision, acted: Acted, replies: Replies
) -> Facts:
    ready = serving(observation.pods)
    live = observation.children.get((DEPLOYMENTS, pool.name))
    deployment = live if live and owned_by(live, pool.uid) else None
    if acted.deployment:
        deployment = acted.deployment.after
    replicas = read_replicas(deployment)
    capacity = smallest_capacity(ready, replies.samples)
    ack: Acknowledgement | None = None
    if decision.runtime:
        ack = acknowledge(decision.runtime.revision, ready, replies.samples, replies.unreachable)
    return Facts(
        pool=pool,
        decision=decision,
        replicas=replicas,
        acknowledgement=ack,
        capacity=pool.capacity if capacity is None else capacity,
        diagnosis=diagnose(observation.pods, replicas.create_failure),
        obstacle=acted.obstacle,
        rolls=acted.rolls,
    )
