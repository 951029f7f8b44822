# SPDX-License-Identifier: Apache-2.0
"""What of a decision people get to read: conditions, history, events."""

from typing import Any

import pytest

from headway_api.conditions import Condition
from headway_autotune.announce import announcements
from headway_autotune.conditions import conditions_of
from headway_autotune.decide import decide, decide_unobserved
from headway_autotune.decision import Decision, Reason
from headway_autotune.guards import Hold
from headway_autotune.observation import Defect, Gap, WorkloadSample
from headway_autotune.pool import TunedPool
from headway_autotune.report import next_history
from tests.autotune.given import (
    NOW,
    TTFT,
    changed,
    condition,
    count,
    idle,
    moment,
    observation,
    pool,
    sample,
    workload,
)

FULL = workload(highest=20_000)
LATE = sample(objectives=(count(TTFT, 120, 80),))
QUIET: dict[str, Any] = {"blocked": {}, "waiting": 0.0}


def shown(tuned: TunedPool, decision: Decision) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status, c.reason) for c in conditions_of(tuned, decision)}


@pytest.mark.parametrize(
    ("samples", "tuned", "slo", "metrics"),
    [
        ((sample(**QUIET),), pool(), ("True", "AllMet"), "Fresh"),
        ((LATE,), pool(), ("False", "Breached"), "Fresh"),
        ((LATE,), pool(FULL), ("False", "AtBounds"), "Fresh"),
        (
            (sample(objectives=(count(TTFT, 949, 51),)),),
            pool(FULL),
            ("False", "Breached"),
            "Fresh",
        ),
        (
            (sample(objectives=(count(TTFT, 99, 0),)),),
            pool(),
            ("Unknown", "InsufficientSamples"),
            "Fresh",
        ),
        ((idle("chat"),), pool(), ("Unknown", "InsufficientSamples"), "NoTraffic"),
        (
            (sample(**QUIET), idle("night")),
            pool(workload(), workload("night")),
            ("True", "AllMet"),
            "Fresh",
        ),
        (
            (sample(objectives=()),),
            pool(workload(objectives=())),
            ("Unknown", "NoObjectives"),
            "Fresh",
        ),
    ],
)
def test_slo_met_speaks_of_every_workload_that_had_traffic(
    samples: tuple[WorkloadSample, ...],
    tuned: TunedPool,
    slo: tuple[str, str],
    metrics: str,
) -> None:
    conditions = shown(tuned, decide(tuned, observation(*samples), NOW))
    assert conditions["SLOMet"] == slo
    assert conditions["MetricsAvailable"] == ("True", metrics)


@pytest.mark.parametrize(
    ("defect", "metrics", "tuning"),
    [
        (Defect.STALE, ("False", "Stale"), "BlockedByMetrics"),
        (Defect.RESET, ("False", "Stale"), "BlockedByMetrics"),
        (Defect.PROVIDER_UNKNOWN, ("False", "ProviderUnknown"), "BlockedByMetrics"),
        (Defect.REPLICAS_CHANGED, ("True", "Fresh"), "BlockedByRollout"),
        (Defect.REVISION_MISMATCH, ("True", "Fresh"), "BlockedByRollout"),
    ],
)
def test_a_torn_window_is_blamed_on_what_tore_it(
    defect: Defect, metrics: tuple[str, str], tuning: str
) -> None:
    seen = observation(gap=Gap(defect, "Torn."))
    conditions = shown(pool(), decide(pool(), seen, NOW))
    assert conditions["MetricsAvailable"] == metrics
    assert conditions["Tuning"] == ("False", tuning)
    assert conditions["SLOMet"] == ("Unknown", "Pending")


def with_conditions(*conditions: Condition) -> TunedPool:
    return pool(FULL, conditions={c.type: c for c in conditions})


def test_a_condition_keeps_its_time_until_its_status_turns() -> None:
    tuned = with_conditions(condition("SLOMet", "False"), condition("Tuning", "False"))
    found = {c.type: c for c in conditions_of(tuned, decide(tuned, observation(LATE), NOW))}
    assert found["SLOMet"].last_transition_time == moment(NOW - 7200)
    assert found["Tuning"].last_transition_time == moment(NOW)
    assert found["Tuning"].observed_generation == tuned.generation


@pytest.mark.parametrize(
    ("before", "told"),
    [
        (condition("SLOMet", "True", reason="AllMet"), ["TuningAtBounds"]),
        (condition("SLOMet", "False", reason="Breached"), ["TuningAtBounds"]),
        (condition("SLOMet", "False", reason="AtBounds"), []),
    ],
)
def test_being_at_the_bounds_is_announced_once(before: Condition, told: list[str]) -> None:
    tuned = with_conditions(before)
    found = announcements(tuned, decide(tuned, observation(LATE), NOW))
    assert [announcement.reason for announcement in found] == told


def reasons(tuned: TunedPool, decision: Decision) -> list[str]:
    return [entry.reason for entry in next_history(tuned, decision)]


def test_history_takes_a_hold_only_when_it_is_news() -> None:
    quiet = observation(sample(**QUIET))
    assert reasons(pool(), decide(pool(), quiet, NOW)) == ["ObjectivesHeld"]
    known = pool(history=(changed("chat", 300, action="Hold"),))
    assert reasons(known, decide(known, quiet, NOW)) == ["ObjectivesHeld"]
    moved = pool(history=(changed("chat", 300, action="Hold"), changed("chat", 200)))
    assert reasons(moved, decide(moved, quiet, NOW)) == [
        "ObjectivesHeld",
        "QueueBound",
        "ObjectivesHeld",
    ]


def test_history_does_not_take_what_merely_waits_or_could_not_be_judged() -> None:
    cooling = pool(history=(changed("chat", 10),))
    assert reasons(cooling, decide(cooling, observation(LATE), NOW)) == ["QueueBound"]
    torn = observation(gap=Gap(Defect.STALE, "Torn."))
    assert reasons(cooling, decide(cooling, torn, NOW)) == ["QueueBound"]
    held = decide_unobserved(cooling, Hold(Reason.ROLLING_OUT, "Rolling."), NOW)
    assert reasons(cooling, held) == ["QueueBound"]
