# SPDX-License-Identifier: Apache-2.0
"""What becomes of a pass that fails, and when a pool is looked at again."""

from datetime import UTC, datetime
from typing import cast

import pytest

from headway_operator.acknowledgement import Acknowledgement, Rejection
from headway_operator.errors import Conflict, Denied, Gone, KubeError, Retry
from headway_operator.facts import Facts, Obstacle
from headway_operator.kube import KubeApi
from headway_operator.pool import PoolKey
from headway_operator.reconcile import Reconciler
from headway_operator.recorder import Recorder
from headway_operator.resources import DEPLOYMENTS, Manifest
from headway_operator.workqueue import Done, Failed, Outcome
from tests.operator.given import OPTIONS, facts, manifest, pool

KEY = PoolKey("team-a", "chat")


class BrokenApi:
    """Gives the pool, and fails at the next thing it is asked for."""

    def __init__(self, error: KubeError) -> None:
        self._error = error

    async def get(self, *which: object) -> Manifest:
        return manifest()

    async def list(self, *which: object) -> list[Manifest]:
        raise self._error


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def reconciler(api: object = None, clock: Clock | None = None) -> Reconciler:
    kube = cast(KubeApi, api)
    return Reconciler(
        kube,
        {},
        Recorder(kube, lambda: datetime.now(UTC)),
        OPTIONS,
        now=lambda: datetime.now(UTC),
        monotonic=clock or Clock(),
    )


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Retry("later", after=7), Failed(at_least=7)),
        (Retry("no answer"), Failed()),
        (Conflict("changed meanwhile"), Failed()),
        (Gone("no such kind"), Failed()),
        (Denied("forbidden"), Failed()),
        (Denied("terminating", namespace_terminating=True), Done()),
    ],
)
async def test_every_error_has_its_consequence(error: KubeError, outcome: Outcome) -> None:
    assert await reconciler(BrokenApi(error)).reconcile(KEY) == outcome


KNOWN = pool({}, {"engine": {"kvCacheCapacityTokens": 5}})
SETTLED: list[tuple[str, Facts, Outcome]] = [
    ("all is well", facts(), Done()),
    ("a child in the way", facts(obstacle=Obstacle(DEPLOYMENTS, "theirs")), Failed()),
    ("nobody to ask", facts(acknowledgement=Acknowledgement(0)), Done()),
    ("refused", facts(acknowledgement=Acknowledgement(1, 0, (Rejection("a", "f"),))), Done(30.0)),
    ("provider down", facts(acknowledgement=Acknowledgement(1, unreachable="no")), Done(30.0)),
    ("capacity learnt", facts(capacity=4096), Done(0.0)),
    ("capacity known", facts(KNOWN, capacity=5), Done()),
]


@pytest.mark.parametrize(("known", "outcome"), [row[1:] for row in SETTLED])
def test_when_a_pool_is_looked_at_again(known: Facts, outcome: Outcome) -> None:
    assert reconciler().next_visit(known) == outcome


def test_an_acknowledgement_is_awaited_eagerly_at_first_and_calmly_later() -> None:
    clock = Clock()
    subject = reconciler(clock=clock)
    pending = facts(acknowledgement=Acknowledgement(ready=1, applied=0))
    newer = facts(
        pool({"engine": {"maxConcurrentRequests": 7}}), acknowledgement=Acknowledgement(1, 0)
    )
    assert subject.next_visit(pending) == Done(after=2.0)
    clock.seconds = 59.0
    assert subject.next_visit(pending) == Done(after=2.0)
    clock.seconds = 61.0
    assert subject.next_visit(pending) == Done(after=30.0)
    assert subject.next_visit(newer) == Done(after=2.0)
    assert subject.next_visit(facts()) == Done()
    assert subject.next_visit(pending) == Done(after=2.0)
