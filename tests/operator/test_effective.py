# SPDX-License-Identifier: Apache-2.0
"""Which HOT values are in force, layer by layer, and how far the tuner may go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway_api.batching import KnobValues
from headway_api.runtime import parse_runtime_file
from headway_api.workloadclass import WorkloadClassSpec
from headway_operator.effective import EffectiveWorkload, MissingClass, effective_workloads
from headway_operator.resources import Manifest
from tests.operator.given import CLASSES, decision, pool

LARGEST_REQUEST = 8192


def effective(
    workload: Manifest,
    *,
    recommended: KnobValues | None = None,
    mode: str = "Auto",
    capacity: int | None = None,
    classes: dict[str, WorkloadClassSpec] | None = None,
) -> EffectiveWorkload:
    spec = {"autotune": {"mode": mode}, "workloads": [{"name": "w", **workload}]}
    found = effective_workloads(
        pool(spec).spec, classes or CLASSES, {"w": recommended} if recommended else {}, capacity
    )
    return found[0]


def test_the_spec_wins_over_the_class_and_the_class_over_the_servers_profile() -> None:
    own = effective({"className": "batch", "batching": {"maxBatchTotalTokens": 9000}})
    inherited = effective({"className": "batch"})
    profiled = effective({"className": "chat"})
    budgets = [item.runtime.batching.max_batch_total_tokens for item in (own, inherited, profiled)]
    assert budgets == [9000, 50_000, None]
    assert [item.source for item in (own, inherited, profiled)] == ["Spec", "Class", "Profiled"]


def test_priority_objectives_and_gate_come_from_the_class_unless_set() -> None:
    runtime = effective({"className": "chat"}).runtime
    assert runtime.priority == 100
    assert runtime.batching.waiting_served_ratio_percent == 0
    assert runtime.batching.max_waiting_tokens == 20
    assert [item.label for item in runtime.objectives] == ["TTFT-p95-1000ms"]
    own = effective(
        {
            "className": "chat",
            "priority": -5,
            "batching": {"waitingServedRatioPercent": 70, "maxWaitingTokens": 0},
            "slo": {"objectives": []},
        }
    ).runtime
    assert own.priority == -5
    assert own.batching.waiting_served_ratio_percent == 70
    assert own.batching.max_waiting_tokens == 0
    assert own.objectives == []


def test_without_any_value_the_gates_defaults_hold() -> None:
    runtime = effective({"className": "bare"}, classes={"bare": WorkloadClassSpec()}).runtime
    assert runtime.batching.waiting_served_ratio_percent == 30
    assert runtime.batching.max_waiting_tokens == 20


def test_a_profiled_budget_is_shown_as_the_capacity_and_left_to_the_server() -> None:
    workload = effective({"className": "chat"}, capacity=70_000)
    assert workload.runtime.batching.max_batch_total_tokens is None
    assert workload.values(70_000).max_batch_total_tokens == 70_000
    assert workload.values(None).max_batch_total_tokens is None


@pytest.mark.parametrize("mode", ["Recommend", "Disabled"])
def test_a_recommendation_is_advice_in_any_mode_but_auto(mode: str) -> None:
    advice = KnobValues(max_batch_total_tokens=20_000, waiting_served_ratio_percent=50)
    workload = effective({"className": "batch"}, recommended=advice, mode=mode)
    assert workload.runtime.batching.max_batch_total_tokens == 50_000
    assert workload.source == "Class"


@pytest.mark.parametrize(
    ("asked", "bounds", "capacity", "applied"),
    [
        (20_000, None, None, 20_000),
        (20_000, (30_000, 60_000), None, 30_000),
        (90_000, (30_000, 60_000), None, 60_000),
        (90_000, (30_000, 60_000), 40_000, 40_000),
        (90_000, None, 40_000, 40_000),
        (10, None, None, LARGEST_REQUEST),
        (50_000, (45_000, 60_000), 40_000, 40_000),
        (50_000, None, 5_000, LARGEST_REQUEST),
    ],
)
def test_a_recommended_budget_stays_within_bounds_and_envelope(
    asked: int, bounds: tuple[int, int] | None, capacity: int | None, applied: int
) -> None:
    workload: Manifest = {"className": "chat"}
    if bounds:
        workload["bounds"] = {"maxBatchTotalTokens": dict(zip(("min", "max"), bounds, strict=True))}
    advice = KnobValues(max_batch_total_tokens=asked)
    found = effective(workload, recommended=advice, capacity=capacity)
    assert found.runtime.batching.max_batch_total_tokens == applied
    assert found.source == "Autotune"


@given(
    asked=st.integers(0, 2**31 - 1),
    ratio=st.integers(0, 2**31 - 1),
    bounds=st.tuples(st.integers(LARGEST_REQUEST, 10**6), st.integers(0, 10**6)),
    capacity=st.none() | st.integers(LARGEST_REQUEST, 10**6),
)
def test_whatever_is_recommended_the_servers_can_hold_it(
    asked: int, ratio: int, bounds: tuple[int, int], capacity: int | None
) -> None:
    low, width = bounds
    limits = {"maxBatchTotalTokens": {"min": low, "max": low + width}}
    advice = KnobValues(max_batch_total_tokens=asked, waiting_served_ratio_percent=ratio)
    found = effective({"bounds": limits}, recommended=advice, capacity=capacity)
    budget = found.runtime.batching.max_batch_total_tokens
    assert budget is not None
    assert LARGEST_REQUEST <= budget <= (capacity or low + width)
    assert 0 <= found.runtime.batching.waiting_served_ratio_percent <= 200


def test_a_missing_class_is_named_beside_those_there_are() -> None:
    spec = {"workloads": [{"name": "w", "className": "chatt"}]}
    with pytest.raises(MissingClass, match=r"WorkloadClass chatt does not exist .*batch, chat"):
        effective_workloads(pool(spec).spec, CLASSES, {}, None)


def test_a_class_that_vanishes_leaves_the_last_written_values_in_force() -> None:
    written = decision(pool())
    configmap = written.children[0].manifest
    held = decision(pool(), classes={}, live=configmap)
    assert held.runtime == written.runtime
    assert held.children == written.children
    assert held.held is not None
    assert "does not exist" in held.held
    tampered = {"data": {"runtime.json": configmap["data"]["runtime.json"].replace("20", "21")}}
    for live in (None, {}, tampered):
        assert decision(pool(), classes={}, live=live).children == ()


def test_the_file_is_one_the_server_reads() -> None:
    made = decision(pool({"workloads": [{"name": "a"}, {"name": "b", "className": "batch"}]}))
    text = made.children[0].manifest["data"]["runtime.json"]
    assert parse_runtime_file(text) == made.runtime


def test_how_batches_are_formed_is_written_once_it_is_not_the_default() -> None:
    asked = {"policy": "Dynamic", "maxDelayMilliseconds": 80, "outputReservation": "Full"}
    made = decision(pool({"engine": {"scheduling": asked}})).runtime
    assert made
    assert made.stable.scheduling
    written = made.stable.scheduling.model_dump(by_alias=True)
    assert {key: written[key] for key in asked} == asked
    assert written["maxBatchSize"] == 32
    for default in ({}, {"outputReservation": "Expected", "bins": 8}):
        plain = decision(pool({"engine": {"scheduling": default}})).runtime
        assert plain
        assert plain.stable.scheduling is None


@pytest.mark.parametrize(
    ("spec", "status", "image"),
    [
        ({}, {}, "registry.example/headway/server:1.2.3"),
        ({"engine": {"image": "own:1"}}, {"engine": {"image": "old:1"}}, "own:1"),
        ({}, {"engine": {"image": "old:1"}}, "old:1"),
        (
            {"rollout": {"operatorUpgradePolicy": "Roll"}},
            {"engine": {"image": "old:1"}},
            "registry.example/headway/server:1.2.3",
        ),
    ],
)
def test_a_new_operator_rolls_nothing_unless_asked_to(
    spec: Manifest, status: Manifest, image: str
) -> None:
    assert decision(pool(spec, status)).image == image
