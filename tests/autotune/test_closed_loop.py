# SPDX-License-Identifier: Apache-2.0
"""The loop closed in simulation: scheduler -> counts -> decision -> status -> scheduler.

Every decision goes through the pool's status and is read back from there, as after a restart.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from headway_api.objectives import Objective
from headway_api.workloadclass import WorkloadClassSpec
from headway_autotune.decide import decide, due_at
from headway_autotune.decision import Decision
from headway_autotune.pool import read_pool
from headway_autotune.report import status_document
from headway_server.scheduler import Plan
from tests.autotune.given import moment
from tests.autotune.simulation import Served, SimulatedReplica, Traffic

EPOCH = 1_800_000_000.0
KV_TOKENS = 16_384
LARGEST_REQUEST = 512
PERIOD, WARMUP = 40, 10


def step_seconds(plan: Plan) -> float:
    """Affine in the batch, as measured on real engines: a + b * rows + c * prompt tokens."""
    return 0.020 + 0.0010 * len(plan.decode) + 0.00005 * plan.prompt_tokens


def _json(objective: Objective) -> dict[str, Any]:
    return objective.model_dump(by_alias=True)


@dataclass
class Loop:
    """`autotune` is the pool's; the operator's part is to put the recommendation into force."""

    served: tuple[Served, ...]
    budgets: dict[str, int]
    autotune: dict[str, Any] = field(default_factory=dict)
    seed: int = 7

    def __post_init__(self) -> None:
        self.replica = SimulatedReplica(
            self.served, kv_tokens=KV_TOKENS, step_seconds=step_seconds, seed=self.seed
        )
        self.status: dict[str, Any] = {}
        self.applied = EPOCH
        self.replica.apply(self.budgets)

    def manifest(self) -> dict[str, Any]:
        return {
            "metadata": {"namespace": "n", "name": "p", "uid": "u", "generation": 1},
            "spec": {
                "model": {"name": "m"},
                "engine": {"maxInputTokens": 256, "maxTotalTokens": LARGEST_REQUEST},
                "workloads": [
                    {
                        "name": one.name,
                        "priority": one.priority,
                        "slo": {
                            "objectives": [o.model_dump(by_alias=True) for o in one.objectives]
                        },
                    }
                    for one in self.served
                ],
                "autotune": {
                    "mode": "Auto",
                    "evaluationPeriodSeconds": PERIOD,
                    "warmupSeconds": WARMUP,
                    "cooldownSeconds": WARMUP,
                    "minSampleCount": 50,
                    **self.autotune,
                },
            },
            "status": {
                **self.status,
                "observedGeneration": 1,
                "readyReplicas": 1,
                "engine": {"kvCacheCapacityTokens": KV_TOKENS},
                "runtimeConfig": {
                    "revision": "r",
                    "lastAppliedTime": moment(self.applied).isoformat(),
                },
            },
        }

    def evaluate(self) -> Decision:
        """Wait until the tuner's next window ends, decide, and put the decision into force."""
        pool = read_pool(self.manifest(), {"chat": WorkloadClassSpec()})
        due = max(due_at(pool, 0.0), self.applied + WARMUP + PERIOD) - EPOCH
        self.replica.advance(due - PERIOD)
        observation = self.replica.observe(PERIOD)
        decision = decide(pool, observation, EPOCH + self.replica.now)
        self.status = status_document(pool, decision)["status"]
        wanted = {
            workload["name"]: workload["recommended"]["maxBatchTotalTokens"]
            for workload in self.status["workloads"]
            if "recommended" in workload
        }
        if wanted.items() - self.budgets.items():
            self.budgets |= wanted
            self.applied = EPOCH + self.replica.now
            self.replica.apply(self.budgets)
        return decision

    def until(self, good: Callable[[], bool], evaluations: int) -> list[Decision]:
        decisions = []
        for _ in range(evaluations):
            decisions.append(self.evaluate())
            if good():
                return decisions
        raise AssertionError([d.verdicts for d in decisions])

    def slo(self) -> str:
        conditions = {c["type"]: c["status"] for c in self.status["conditions"]}
        return str(conditions["SLOMet"])

    def slo_met(self) -> bool:
        return self.slo() == "True"


def ttft(milliseconds: int) -> Objective:
    return Objective(metric="TTFT", percentile=95, threshold_milliseconds=milliseconds)


def tpot(milliseconds: int) -> Objective:
    return Objective(metric="TPOT", percentile=95, threshold_milliseconds=milliseconds)


def moves(decisions: list[Decision]) -> list[tuple[str, str]]:
    found = [decision.move for decision in decisions if decision.move]
    return [(move.workload, move.action.value) for move in found]


CLOSED = Traffic(prompt=100, output=60, clients=24)
POISSON = Traffic(prompt=100, output=60, per_second=4.0)


@pytest.mark.parametrize(("traffic", "seed"), [(CLOSED, 1), (POISSON, 1), (POISSON, 2)])
def test_a_budget_that_is_too_small_is_raised_until_first_tokens_come_in_time(
    traffic: Traffic, seed: int
) -> None:
    chat = Served("chat", (ttft(1000),), traffic)
    loop = Loop((chat,), {"chat": LARGEST_REQUEST}, {"maxStepPercent": 50}, seed)
    first = loop.evaluate()
    assert first.judgements["chat"][0].attainment == 0.0
    decisions = loop.until(loop.slo_met, evaluations=10)
    assert set(moves(decisions)) == {("chat", "Increase")}
    settled = [loop.evaluate() for _ in range(4)]
    assert loop.slo_met()
    assert moves(settled) == []


def test_a_budget_that_is_too_big_is_lowered_until_tokens_come_fast_enough_and_stays() -> None:
    chat = Served("chat", (tpot(45),), Traffic(prompt=50, output=50, clients=60))
    loop = Loop((chat,), {"chat": 6000}, {"cooldownSeconds": 50})
    decisions = loop.until(loop.slo_met, evaluations=8)
    assert set(moves(decisions)[:-1]) == {("chat", "Decrease")}
    later = []
    for _ in range(10):
        loop.evaluate()
        later.append(loop.slo())
    assert later.count("False") <= 1
    assert 1500 <= loop.budgets["chat"] <= 2500, "25 requests of 100 tokens just meet 45 ms"


def test_batch_gives_for_chat_until_chat_holds_and_goes_on_working() -> None:
    chat = Served("chat", (tpot(45), ttft(1000)), Traffic(50, 50, per_second=4), priority=100)
    batch = Served("batch", (), Traffic(50, 100, clients=60), priority=-100)
    loop = Loop((chat, batch), {"chat": 8000, "batch": KV_TOKENS}, {})
    decisions = loop.until(loop.slo_met, evaluations=14)
    assert ("batch", "Decrease") in moves(decisions)
    assert loop.budgets["chat"] == 8000
    last = decisions[-1].observation
    assert last is not None
    assert last.sample("batch").completed > 50


def test_objectives_that_no_budget_can_meet_are_reported_and_nothing_is_moved() -> None:
    chat = Served("chat", (tpot(30), ttft(300)), Traffic(prompt=50, output=50, clients=60))
    loop = Loop((chat,), {"chat": 2000})
    decisions = [loop.evaluate() for _ in range(4)]
    assert moves(decisions) == []
    slo = next(c for c in loop.status["conditions"] if c["type"] == "SLOMet")
    assert (slo["status"], slo["reason"]) == ("False", "AtBounds")
    assert "add replicas" in slo["message"]
