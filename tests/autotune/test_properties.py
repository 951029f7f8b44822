# SPDX-License-Identifier: Apache-2.0
"""What no window may bring about, whatever it holds."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway_api.objectives import Objective
from headway_autotune.decide import decide
from headway_autotune.decision import Decision
from headway_autotune.observation import Defect, Gap, Observation, Window, WorkloadSample
from headway_autotune.pool import TunedPool, TunedWorkload
from headway_autotune.report import next_history
from tests.autotune.given import (
    CAPACITY,
    NOW,
    TPOT,
    TTFT,
    autotune,
    changed,
    count,
    observation,
    pool,
    sample,
    workload,
)

TOKENS = st.integers(1, 2 * CAPACITY)
BLOCKED = st.dictionaries(
    st.sampled_from(("budget", "kv", "gate", "prefill_budget", "limit")), st.integers(0, 1000)
)
OBJECTIVES = st.lists(
    st.builds(
        Objective,
        metric=st.sampled_from(("TTFT", "TPOT", "ITL", "E2E", "QueueTime")),
        percentile=st.sampled_from((50, 90, 95, 99)),
        threshold_milliseconds=st.integers(1, 5000),
    ),
    max_size=2,
    unique_by=lambda objective: (objective.metric, objective.percentile),
).map(tuple)


@st.composite
def workloads(draw: st.DrawFn, name: str) -> TunedWorkload:
    bounds = draw(st.tuples(TOKENS, TOKENS))
    return workload(
        name,
        priority=draw(st.integers(-2, 2)),
        objectives=draw(OBJECTIVES),
        lowest=min(bounds),
        highest=min(max(bounds), CAPACITY),
        recommended=draw(st.none() | TOKENS),
        wants_throughput=draw(st.booleans()),
    )


@st.composite
def samples(draw: st.DrawFn, of: TunedWorkload, requests: st.SearchStrategy[int]) -> WorkloadSample:
    budget = draw(TOKENS)
    peak = draw(st.integers(0, budget))
    return WorkloadSample(
        name=of.name,
        budget=budget,
        objectives=tuple(count(o, draw(requests), draw(requests)) for o in of.objectives),
        completed=draw(requests),
        reserved_mean=draw(st.floats(0, peak)),
        reserved_peak=peak,
        waiting=draw(st.floats(0, 50)),
        blocked=draw(BLOCKED),
    )


@st.composite
def situations(
    draw: st.DrawFn, requests: st.SearchStrategy[int] | None = None
) -> tuple[TunedPool, Observation]:
    if requests is None:
        requests = st.integers(0, 400)
    tuned = [draw(workloads(f"w{index}")) for index in range(draw(st.integers(1, 3)))]
    tuning = autotune(
        max_step_percent=draw(st.integers(1, 100)),
        hysteresis_percent=draw(st.integers(0, 50)),
        min_sample_count=100,
    )
    names = st.sampled_from([w.name for w in tuned])
    history = tuple(
        changed(draw(names), draw(st.integers(0, 2000))) for _ in range(draw(st.integers(0, 3)))
    )
    seen = Observation(
        window=Window(NOW - 120, NOW),
        replicas=1,
        kv_usage_percent=draw(st.floats(0, 100)),
        workloads=tuple(draw(samples(w, requests)) for w in tuned),
    )
    return pool(*tuned, autotune=tuning, history=history), seen


def outcome(situation: tuple[TunedPool, Observation], **kwargs: Any) -> Decision:
    tuned, seen = situation
    return decide(tuned, seen, NOW)


@settings(max_examples=100, deadline=None)
@given(situations())
def test_a_move_is_one_bounded_step_inside_the_bounds(
    situation: tuple[TunedPool, Observation],
) -> None:
    tuned, seen = situation
    decision = decide(tuned, seen, NOW)
    moves = [verdict for verdict in decision.verdicts if verdict.moves]
    assert len(decision.verdicts) == len(tuned.workloads)
    assert len(moves) <= 1
    for move in moves:
        assert move.old is not None
        assert move.new is not None
        owner = next(w for w in tuned.workloads if w.name == move.workload)
        step = move.old * tuned.autotune.max_step_percent // 100
        assert owner.lowest <= move.new <= owner.highest
        assert move.new != move.old == seen.sample(move.workload).budget
        assert (move.new > move.old) == (move.action == "Increase")
        to_a_bound = not owner.lowest <= move.old <= owner.highest
        assert abs(move.new - move.old) <= step or to_a_bound
        last = tuned.last_change(move.workload)
        assert last is None or NOW - last >= tuned.autotune.cooldown_seconds
        if move.action == "Increase":
            _check_raise(tuned, seen, move.workload, move.new)


def _check_raise(tuned: TunedPool, seen: Observation, name: str, tokens: int) -> None:
    others = sum(s.reserved_peak for s in seen.workloads if s.name != name)
    assert tokens + others <= CAPACITY
    assert seen.kv_usage_percent <= tuned.autotune.max_kv_usage_percent
    assert seen.sample(name).blocked.get("budget", 0) or seen.sample(name).waiting > 0


@settings(max_examples=30, deadline=None)
@given(situations(requests=st.integers(0, 49)))
def test_no_move_on_thin_evidence(situation: tuple[TunedPool, Observation]) -> None:
    assert outcome(situation).move is None


@settings(max_examples=30, deadline=None)
@given(situations(), st.sampled_from(Defect))
def test_no_move_on_a_defective_window(
    situation: tuple[TunedPool, Observation], defect: Defect
) -> None:
    tuned, seen = situation
    torn = Observation(seen.window, Gap(defect, "Torn."), 1, 10.0, seen.workloads)
    decision = decide(tuned, torn, NOW)
    assert decision.move is None
    assert all(verdict.message for verdict in decision.verdicts)


@pytest.mark.parametrize("objective", [TTFT, TPOT])
@given(
    start=st.integers(1, 3 * CAPACITY),
    bounds=st.tuples(TOKENS, TOKENS).filter(lambda pair: min(pair) <= CAPACITY),
    step=st.integers(1, 100),
)
@settings(max_examples=25, deadline=None)
def test_an_unbroken_breach_drives_the_budget_one_way_to_its_bound_and_then_reports_it(
    objective: Objective, start: int, bounds: tuple[int, int], step: int
) -> None:
    lowest, highest = min(bounds), min(max(bounds), CAPACITY)
    tuned = workload(objectives=(objective,), lowest=lowest, highest=highest)
    of_pool = pool(tuned, autotune=autotune(max_step_percent=step))
    budget, path = start, [start]
    for _ in range(2000):
        seen = sample(budget=budget, objectives=(count(objective, 10, 190),))
        decision = decide(of_pool, observation(seen), NOW)
        if decision.move is None:
            break
        assert decision.move.new is not None
        budget = decision.move.new
        path.append(budget)
    assert decision.verdicts[0].exhausted
    assert path in (sorted(path), sorted(path, reverse=True))
    enough = budget * step >= 100
    if enough and len(path) > 1:
        assert budget in (lowest, highest)


@settings(max_examples=30, deadline=None)
@given(situations())
def test_the_same_window_gives_the_same_decision(
    situation: tuple[TunedPool, Observation],
) -> None:
    assert outcome(situation) == outcome(situation)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([f"w{index}" for index in range(8)]),
            st.sampled_from(["Increase", "Decrease", "Hold"]),
        ),
        max_size=10,
    ),
    situations(),
)
def test_history_is_bounded_and_never_forgets_a_workloads_last_change(
    past: list[tuple[str, str]], situation: tuple[TunedPool, Observation]
) -> None:
    tuned, seen = situation
    history = tuple(
        changed(name, 5000 - index, action) for index, (name, action) in enumerate(past)
    )
    older = pool(*tuned.workloads, autotune=tuned.autotune, history=history)
    kept = next_history(older, decide(older, seen, NOW))
    assert len(kept) <= 10
    assert [entry.time for entry in kept] == sorted(entry.time for entry in kept)
    newer = pool(*tuned.workloads, history=tuple(kept))
    for name, _ in past:
        assert (newer.last_change(name) or 0) >= (older.last_change(name) or 0)
