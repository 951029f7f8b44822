# SPDX-License-Identifier: Apache-2.0
"""Which budget moves, which way and how far: one row per rule of layer 1."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from headway_autotune.decide import decide
from headway_autotune.decision import Action, Decision, Reason
from headway_autotune.observation import WorkloadSample
from headway_autotune.pool import TunedWorkload
from tests.autotune.given import (
    NOW,
    TPOT,
    TTFT,
    autotune,
    changed,
    count,
    idle,
    observation,
    pool,
    sample,
    workload,
)

SLOW_FIRST_TOKEN = (count(TTFT, 120, 80),)
SLOW_TOKENS = (count(TPOT, 120, 80),)
GOOD_TOKENS = (count(TPOT, 200, 0),)
FREE_QUEUE: dict[str, Any] = {"blocked": {}, "waiting": 0.0}

CHAT = workload()
STREAM = workload(objectives=(TPOT,))
AGENT = workload("agent", priority=200, objectives=(TPOT,))
BATCH = workload("batch", priority=-100, objectives=())


def batch(**changes: Any) -> WorkloadSample:
    """Holds most of the cache and waits for more."""
    given = {"objectives": (), "budget": 60_000, "reserved_mean": 58_000.0}
    return sample("batch", **{**given, "reserved_peak": 60_000.0, "blocked": {}, **changes})


@dataclass(frozen=True)
class Row:
    says: str
    seen: tuple[WorkloadSample, ...]
    reason: Reason
    workload: str = "chat"
    action: Action = Action.HOLD
    to: int | None = None
    workloads: tuple[TunedWorkload, ...] = (CHAT,)
    pool: dict[str, Any] = field(default_factory=dict)
    kv: float = 40.0
    exhausted: bool = False

    def __str__(self) -> str:
        return self.says.replace(" ", "-")


UP, DOWN = Action.INCREASE, Action.DECREASE
BREACHED = sample(objectives=SLOW_FIRST_TOKEN)

ROWS = [
    Row(
        "a full own budget is raised by one step",
        (BREACHED,),
        Reason.QUEUE_BOUND,
        action=UP,
        to=24_000,
    ),
    Row(
        "the step is the pool's",
        (BREACHED,),
        Reason.QUEUE_BOUND,
        action=UP,
        to=40_000,
        pool={"autotune": autotune(max_step_percent=100)},
    ),
    Row(
        "the bound cuts the step short",
        (BREACHED,),
        Reason.QUEUE_BOUND,
        action=UP,
        to=21_000,
        workloads=(workload(highest=21_000),),
    ),
    Row(
        "at the bound there is nothing left but to scale",
        (BREACHED,),
        Reason.AT_BOUNDS,
        workloads=(workload(highest=20_000),),
        exhausted=True,
    ),
    Row(
        "a budget below its lower bound goes to the bound",
        (BREACHED,),
        Reason.QUEUE_BOUND,
        action=UP,
        to=30_000,
        workloads=(workload(lowest=30_000),),
    ),
    Row(
        "a gate is not cured by budget",
        (sample(objectives=SLOW_FIRST_TOKEN, blocked={"gate": 9}),),
        Reason.GATE_BOUND,
    ),
    Row(
        "nor is the prefill budget",
        (sample(objectives=SLOW_FIRST_TOKEN, blocked={"prefill_budget": 9}),),
        Reason.PREFILL_BOUND,
    ),
    Row(
        "nor an admission limit",
        (sample(objectives=SLOW_FIRST_TOKEN, blocked={"limit": 9}),),
        Reason.LIMIT_BOUND,
    ),
    Row(
        "a budget that does not bind stays",
        (sample(objectives=SLOW_FIRST_TOKEN, reserved_mean=9_000.0, **FREE_QUEUE),),
        Reason.NOT_BINDING,
    ),
    Row("a full cache objects", (BREACHED,), Reason.KV_USAGE_HIGH, kv=91.0, exhausted=True),
    Row(
        "the scheduler lacks KV and nobody can give",
        (sample(objectives=SLOW_FIRST_TOKEN, blocked={"kv": 9}),),
        Reason.KV_BOUND,
        exhausted=True,
    ),
    Row(
        "the scheduler lacks KV and batch gives",
        (sample(objectives=SLOW_FIRST_TOKEN, blocked={"kv": 9}), batch()),
        Reason.MAKES_ROOM,
        "batch",
        DOWN,
        48_000,
        (CHAT, BATCH),
    ),
    Row(
        "a slow first token behind nothing visible is batch in the way",
        (sample(objectives=SLOW_FIRST_TOKEN, **FREE_QUEUE), batch()),
        Reason.BATCH_INTERFERENCE,
        "batch",
        DOWN,
        48_000,
        (CHAT, BATCH),
    ),
    Row(
        "no room beside what batch holds, so batch gives first",
        (BREACHED, batch(budget=80_000, reserved_peak=80_000.0)),
        Reason.MAKES_ROOM,
        "batch",
        DOWN,
        64_000,
        (CHAT, BATCH),
    ),
    Row(
        "an idle neighbour's unused budget is room",
        (BREACHED, batch(budget=100_000, reserved_mean=0.0, reserved_peak=0.0)),
        Reason.QUEUE_BOUND,
        action=UP,
        to=24_000,
        workloads=(CHAT, BATCH),
    ),
    Row(
        "slow tokens are cured by their own budget when they are alone",
        (sample(objectives=SLOW_TOKENS),),
        Reason.DECODE_BOUND,
        action=DOWN,
        to=16_000,
        workloads=(STREAM,),
    ),
    Row(
        "the lower bound cuts that step short",
        (sample(objectives=SLOW_TOKENS),),
        Reason.DECODE_BOUND,
        action=DOWN,
        to=17_000,
        workloads=(workload(objectives=(TPOT,), lowest=17_000),),
    ),
    Row(
        "at the lower bound there is nothing left but to scale",
        (sample(objectives=SLOW_TOKENS),),
        Reason.AT_BOUNDS,
        workloads=(workload(objectives=(TPOT,), lowest=20_000),),
        exhausted=True,
    ),
    Row(
        "a budget above its upper bound drains to the bound",
        (sample(objectives=SLOW_TOKENS, budget=100_000),),
        Reason.DECODE_BOUND,
        action=DOWN,
        to=50_000,
        workloads=(workload(objectives=(TPOT,), highest=50_000),),
    ),
    Row(
        "batch gives before the breached workload itself",
        (sample(objectives=SLOW_TOKENS), batch()),
        Reason.BATCH_INTERFERENCE,
        "batch",
        DOWN,
        48_000,
        (STREAM, BATCH),
    ),
    Row(
        "batch that holds next to nothing is no donor",
        (sample(objectives=SLOW_TOKENS), batch(reserved_mean=500.0)),
        Reason.DECODE_BOUND,
        action=DOWN,
        to=16_000,
        workloads=(STREAM, BATCH),
    ),
    Row(
        "batch at its lower bound gives no more",
        (sample(objectives=SLOW_TOKENS), batch(budget=8192)),
        Reason.DECODE_BOUND,
        action=DOWN,
        to=16_000,
        workloads=(STREAM, BATCH),
    ),
    Row(
        "a higher priority never gives for a lower one",
        (sample(objectives=SLOW_TOKENS), sample("agent", objectives=GOOD_TOKENS)),
        Reason.DECODE_BOUND,
        action=DOWN,
        to=16_000,
        workloads=(STREAM, AGENT),
    ),
    Row(
        "slow tokens and a starved queue leave no budget that serves both",
        (sample(objectives=SLOW_TOKENS + SLOW_FIRST_TOKEN),),
        Reason.OBJECTIVES_CONFLICT,
        workloads=(workload(objectives=(TPOT, TTFT)),),
        exhausted=True,
    ),
    Row(
        "a raise is refused while token latency is near its threshold",
        (sample(objectives=(*SLOW_FIRST_TOKEN, count(TPOT, 190, 10))),),
        Reason.OBJECTIVES_CONFLICT,
        workloads=(workload(objectives=(TTFT, TPOT)),),
        exhausted=True,
    ),
    Row(
        "the highest priority is served first",
        (BREACHED, sample("agent", objectives=SLOW_TOKENS)),
        Reason.BATCH_INTERFERENCE,
        "chat",
        DOWN,
        16_000,
        (CHAT, AGENT),
    ),
    Row(
        "no raise below a higher priority that is breached and stuck",
        (BREACHED, sample("agent", objectives=SLOW_TOKENS, reserved_mean=300_000.0)),
        Reason.HIGHER_PRIORITY_FIRST,
        workloads=(CHAT, workload("agent", priority=200, objectives=(TPOT,), lowest=20_000)),
    ),
    Row("cooldown", (BREACHED,), Reason.COOLDOWN, pool={"history": (changed("chat", 100),)}),
    Row(
        "the cooldown of the donor holds the breached one",
        (sample(objectives=SLOW_TOKENS), batch()),
        Reason.COOLDOWN,
        workloads=(STREAM, BATCH),
        pool={"history": (changed("batch", 100),)},
    ),
    Row(
        "the same advice is not given twice",
        (BREACHED,),
        Reason.RECOMMENDATION_STANDS,
        workloads=(workload(recommended=24_000),),
    ),
    Row(
        "held with a margin and wanting more, it grows gently",
        (sample(),),
        Reason.THROUGHPUT_HEADROOM,
        action=UP,
        to=21_000,
    ),
    Row(
        "batch grows on the evidence of the others",
        (sample(**FREE_QUEUE), batch(blocked={"budget": 9})),
        Reason.THROUGHPUT_HEADROOM,
        "batch",
        UP,
        63_000,
        (CHAT, BATCH),
    ),
    Row(
        "no growth for whoever asks for low latency",
        (sample(),),
        Reason.OBJECTIVES_HELD,
        workloads=(workload(wants_throughput=False),),
    ),
    Row("no growth without demand", (sample(**FREE_QUEUE),), Reason.OBJECTIVES_HELD),
    Row(
        "no growth on luck",
        (sample(objectives=(count(TTFT, 98, 2),)),),
        Reason.OBJECTIVES_HELD,
    ),
    Row("no growth into a full cache", (sample(),), Reason.OBJECTIVES_HELD, kv=91.0),
    Row(
        "no growth while another is too thin to judge",
        (sample(), sample("agent", objectives=(count(TPOT, 5, 0),))),
        Reason.OBJECTIVES_HELD,
        workloads=(CHAT, AGENT),
    ),
    Row(
        "a neighbour without traffic does not stop growth",
        (sample(), idle("agent", objectives=(count(TPOT, 0, 0),))),
        Reason.THROUGHPUT_HEADROOM,
        action=UP,
        to=21_000,
        workloads=(CHAT, AGENT),
    ),
    Row(
        "growth passes over who is cooling down",
        (sample(), batch(budget=60_000, blocked={"budget": 9})),
        Reason.THROUGHPUT_HEADROOM,
        "batch",
        UP,
        63_000,
        (CHAT, BATCH),
        {"history": (changed("chat", 100),)},
    ),
    Row("in the dead band", (sample(objectives=(count(TTFT, 190, 10),)),), Reason.IN_DEAD_BAND),
    Row("thin", (sample(objectives=(count(TTFT, 0, 99),)),), Reason.INSUFFICIENT_SAMPLES),
    Row("idle", (idle("chat"),), Reason.NO_TRAFFIC),
    Row(
        "without objectives there is nothing to steer by",
        (sample(objectives=()),),
        Reason.NO_OBJECTIVES,
        workloads=(workload(objectives=()),),
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rule(row: Row) -> None:
    decision = decide(
        pool(*row.workloads, **row.pool), observation(*row.seen, kv_usage_percent=row.kv), NOW
    )
    verdict = next(v for v in decision.verdicts if v.workload == row.workload)
    assert (verdict.reason, verdict.action, verdict.new) == (row.reason, row.action, row.to)
    assert verdict.exhausted == row.exhausted
    assert len([v for v in decision.verdicts if v.moves]) <= 1


def decided(*seen: WorkloadSample) -> Decision:
    return decide(pool(STREAM, BATCH), observation(*seen), NOW)


def test_a_move_says_what_from_where_to_where_and_on_which_evidence() -> None:
    first = sample(objectives=(count(TTFT, 120, 80, observed=4210),))
    decision = decide(pool(), observation(first), NOW)
    assert decision.move is not None
    assert decision.move.message == (
        "chat: maxBatchTotalTokens 20000 -> 24000: 60.0 % of 200 requests had TTFT within 1000 ms,"
        " 95 % should (p95 is 4210 ms); its budget held the queue back in 500 steps."
    )


def test_the_workload_that_waits_for_a_donor_says_so() -> None:
    decision = decided(sample(objectives=SLOW_TOKENS), batch())
    chat = decision.verdicts[0]
    assert chat.reason is Reason.OTHER_CHANGE_FIRST
    assert "batch: maxBatchTotalTokens 60000 -> 48000" in chat.message
