# SPDX-License-Identifier: Apache-2.0
"""Brings a pool's children to what was decided, with as few writes as possible and none at rest.

An object of the same name that is not the pool's is never written to. The first child that cannot
be brought about ends the pass, because later ones rely on it: pods on their network policy.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from headway_api.conditions import ConditionType, Reason
from headway_api.events import EventReason
from headway_api.names import OPERATOR_MANAGER, RUNTIME_REVISION_ANNOTATION
from headway_operator.build import Child
from headway_operator.build.metadata import SEAL_ANNOTATION
from headway_operator.contains import contains
from headway_operator.errors import Denied, Gone
from headway_operator.facts import Obstacle
from headway_operator.kube import KubeApi
from headway_operator.observe import Children
from headway_operator.pool import Pool
from headway_operator.resources import DEPLOYMENTS, PODS, Manifest, Manifests
from headway_operator.transitions import PoolEvent


class Blocked(Exception):
    def __init__(self, obstacle: Obstacle) -> None:
        super().__init__(obstacle.message)
        self.obstacle = obstacle


@dataclass(frozen=True, slots=True)
class Step:
    """A child before and after; both are the same object when nothing had to be written."""

    child: Child
    before: Manifest | None
    after: Manifest

    @property
    def wrote(self) -> bool:
        return self.after is not self.before


@dataclass(frozen=True, slots=True)
class Acted:
    steps: tuple[Step, ...]
    obstacle: Obstacle | None

    @property
    def deployment(self) -> Step | None:
        return next((step for step in self.steps if step.child.resource is DEPLOYMENTS), None)

    @property
    def rolls(self) -> bool:
        """Whether the pod template has just been changed."""
        step = self.deployment
        if step is None or not step.wrote:
            return False
        template = step.child.manifest["spec"]["template"]
        return step.before is None or not contains(step.before["spec"]["template"], template)


async def act(api: KubeApi, pool: Pool, children: Sequence[Child], live: Children) -> Acted:
    steps: list[Step] = []
    for child in children:
        try:
            steps.append(await _bring_about(api, pool, child, live))
        except Blocked as blocked:
            return Acted(tuple(steps), blocked.obstacle)
    if children:
        await _prune(api, pool, children, live)
    return Acted(tuple(steps), None)


async def announce_revision(api: KubeApi, pods: Manifests, revision: str) -> None:
    """Annotate every pod, because a kubelet re-reads a pod's ConfigMap at once when it changes.

    Without that the mounted file follows only at the kubelet's sync period, about a minute.
    """
    await asyncio.gather(*(_announce(api, pod, revision) for pod in pods))


def owned_by(live: Manifest, uid: str) -> bool:
    owners = live["metadata"].get("ownerReferences") or []
    return any(owner.get("controller") and owner["uid"] == uid for owner in owners)


def drift(pool: Pool, steps: Sequence[Step]) -> list[PoolEvent]:
    """What somebody else had changed or deleted: the wish is the old one, the object was not."""
    events = []
    for step in steps:
        if step.wrote and _drifted(pool, step):
            done = "deleted" if step.before is None else "changed"
            message = f"{title(step.child)} had been {done} and was restored."
            events.append(PoolEvent(EventReason.CHILD_DRIFT_REVERTED, message))
    return events


def title(child: Child) -> str:
    return f"{child.resource.kind} {child.name}"


async def _bring_about(api: KubeApi, pool: Pool, child: Child, live: Children) -> Step:
    before = live.get((child.resource, child.name)) or await _unlabelled(api, pool, child)
    if before is not None and not owned_by(before, pool.uid):
        message = f"Conflict: {title(child)} exists and is not this pool's; it is left alone."
        raise Blocked(Obstacle(child.resource, message))
    if before is not None and contains(before, child.manifest):
        return Step(child, before, before)
    try:
        after = await api.apply(child.resource, child.manifest, manager=OPERATOR_MANAGER)
    except Denied as error:
        if error.namespace_terminating:
            raise
        message = f"{title(child)} was refused: {error}"
        raise Blocked(Obstacle(child.resource, message)) from error
    return Step(child, before, after)


async def _unlabelled(api: KubeApi, pool: Pool, child: Child) -> Manifest | None:
    """Children are listed by label; an object of that name without the label shows only here."""
    try:
        return await api.get(child.resource, child.name, pool.namespace)
    except Gone:
        return None


async def _prune(api: KubeApi, pool: Pool, children: Sequence[Child], live: Children) -> None:
    wanted = {(child.resource, child.name) for child in children}
    for (resource, name), manifest in live.items():
        if (resource, name) not in wanted and owned_by(manifest, pool.uid):
            with contextlib.suppress(Gone):
                await api.delete(resource, manifest)


async def _announce(api: KubeApi, pod: Manifest, revision: str) -> None:
    meta = pod["metadata"]
    annotations = {RUNTIME_REVISION_ANNOTATION: revision}
    if meta.get("deletionTimestamp") or contains(meta.get("annotations") or {}, annotations):
        return
    with contextlib.suppress(Gone):
        await api.annotate(PODS, meta["name"], meta["namespace"], annotations)


def _drifted(pool: Pool, step: Step) -> bool:
    """A write that changed nothing was no repair: something rewrites the object on admission."""
    if step.before is not None:
        if step.after["metadata"]["resourceVersion"] == step.before["metadata"]["resourceVersion"]:
            return False
        seal = step.child.manifest["metadata"]["annotations"][SEAL_ANNOTATION]
        return contains(step.before, {"metadata": {"annotations": {SEAL_ANNOTATION: seal}}})
    begun = {
        condition.type: condition.reason != Reason.PENDING
        for condition in pool.status.conditions or []
        if condition.observed_generation == pool.generation
    }
    return begun.get(ConditionType.PROGRESSING, False)
