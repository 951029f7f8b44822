# SPDX-License-Identifier: Apache-2.0
"""Every do-nothing rule, by itself, on a pool that is healthy otherwise."""

from typing import Any

import pytest

from headway_autotune.decide import decide, objection, window_ending
from headway_autotune.decision import Reason
from headway_autotune.guards import cooldown, kv_usage, on_measurements
from headway_autotune.observation import Defect, Gap
from headway_autotune.pool import TunedPool
from tests.autotune.given import (
    NOW,
    SETTLE,
    autotune,
    changed,
    condition,
    observation,
    pool,
)


def with_condition(kind: str, status: Any) -> dict[str, Any]:
    conditions = dict(pool().conditions)
    conditions.pop(kind)
    if status is not None:
        conditions[kind] = condition(kind, status)
    return {"conditions": conditions}


def applied(ago: float) -> dict[str, Any]:
    return {"last_applied": NOW - ago}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"paused": True}, Reason.PAUSED),
        ({"observed_generation": 2}, Reason.SPEC_NOT_OBSERVED),
        ({"ready_replicas": 0}, Reason.NO_REPLICAS),
        (with_condition("Available", "False"), Reason.NOT_AVAILABLE),
        (with_condition("Available", "Unknown"), Reason.NOT_AVAILABLE),
        (with_condition("Available", None), Reason.NOT_AVAILABLE),
        (with_condition("Progressing", "True"), Reason.ROLLING_OUT),
        (with_condition("RuntimeConfigSynced", "False"), Reason.NOT_SYNCED),
        (with_condition("RuntimeConfigSynced", "Unknown"), Reason.NOT_SYNCED),
        ({"capacity": None}, Reason.CAPACITY_UNKNOWN),
        ({"last_applied": None}, Reason.NOT_SYNCED),
        ({"revision": None}, Reason.NOT_SYNCED),
        (applied(120 + 180 + SETTLE - 1), Reason.WARMING_UP),
        (applied(120 + 180 + SETTLE), None),
        ({}, None),
    ],
)
def test_a_pool_that_is_not_fit_is_not_even_observed(
    changes: dict[str, Any], reason: Reason | None
) -> None:
    found = objection(pool(**changes), NOW, SETTLE)
    assert (found and found.reason) == reason
    assert found is None or found.message.endswith((".", "sentence."))


@pytest.mark.parametrize("defect", list(Defect))
def test_a_window_with_a_defect_holds_every_workload(defect: Defect) -> None:
    seen = observation(gap=Gap(defect, "What is wrong."))
    decision = decide(pool(), seen, NOW)
    assert decision.move is None
    assert [(v.reason, v.message) for v in decision.verdicts] == [
        (Reason(defect.value), "What is wrong.")
    ]


@pytest.mark.parametrize(
    ("measured", "ready", "reason"),
    [
        (1, 2, Reason.PARTIALLY_SCRAPED),
        (3, 2, Reason.REPLICAS_CHANGED),
        (2, 2, None),
    ],
)
def test_every_ready_replica_must_have_been_measured(
    measured: int, ready: int, reason: Reason | None
) -> None:
    found = on_measurements(pool(ready_replicas=ready), observation(replicas=measured))
    assert (found and found.reason) == reason


@pytest.mark.parametrize(
    ("history", "held"),
    [
        ((), False),
        ((changed("chat", 601),), False),
        ((changed("chat", 599),), True),
        ((changed("batch", 1),), False),
        ((changed("chat", 601), changed("chat", 1, action="Hold")), False),
    ],
)
def test_cooldown_counts_from_the_workloads_own_last_change(
    history: tuple[Any, ...], held: bool
) -> None:
    assert (cooldown(pool(history=history), "chat", NOW) is not None) == held


@pytest.mark.parametrize(("percent", "held"), [(90.0, False), (90.1, True)])
def test_kv_usage_above_the_limit_objects_to_raises(percent: float, held: bool) -> None:
    assert (kv_usage(pool(), observation(kv_usage_percent=percent)) is not None) == held


def test_the_window_is_one_evaluation_period_long() -> None:
    tuned: TunedPool = pool(autotune=autotune(evaluation_period_seconds=77))
    assert window_ending(tuned, NOW).seconds == 77
