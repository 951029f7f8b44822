# SPDX-License-Identifier: Apache-2.0
"""The moves that one window permits: raise a budget, take from a donor, or be told why not.

A raise needs all of this: the budget binds; KV usage is not high; no higher priority is breached;
no token latency of equal or higher priority is near its threshold, since a raise lengthens every
step; and the tokens exist: the new budget plus what the others were seen to hold fits the capacity.
That last rule counts what is held and not the sum of the budgets. An unset budget is the whole
capacity, so with two default workloads the plain sum would forbid every raise, while the scheduler
guards the KV blocks themselves in any case. Among saturated workloads both sums are the same.
"""

from collections.abc import Iterator

from headway_autotune import words
from headway_autotune.attainment import Standing
from headway_autotune.budget import lowered, raised
from headway_autotune.decision import Action, Reason, Verdict
from headway_autotune.evaluation import DECODE_METRICS, Evaluation, JudgedWorkload
from headway_autotune.guards import Hold, cooldown, kv_usage

DONOR_SHARE = 0.1
GROWTH_DIVISOR = 4
REMEMBERED_ROUNDS = 10
SAFE_SHARE = 0.95


def objection_to_raise(evaluation: Evaluation, judged: JudgedWorkload) -> Hold | None:
    for other in evaluation.breached:
        if other.priority > judged.priority:
            text = f"{other.name} has the higher priority and is breached too."
            return Hold(Reason.HIGHER_PRIORITY_FIRST, text)
    for other in evaluation.workloads:
        if other.priority >= judged.priority and _decode_near_threshold(other):
            text = f"a larger batch would put the token latency of {other.name} at risk."
            return Hold(Reason.OBJECTIVES_CONFLICT, text)
    return kv_usage(evaluation.pool, evaluation.observation)


def _decode_near_threshold(judged: JudgedWorkload) -> bool:
    return any(
        judgement.count.objective.metric in DECODE_METRICS
        and judgement.standing in (Standing.NEAR, Standing.BREACHED)
        for judgement in judged.judgements
    )


def donors(
    evaluation: Evaluation, judged: JudgedWorkload, *, equals: bool
) -> Iterator[JudgedWorkload]:
    """Who gives for `judged`, first in line first. A donor holds at least a tenth of the batch, or
    cutting it would change nothing; an equal whose own queue is breached has nothing to give."""
    for other in sorted(evaluation.workloads, key=lambda w: (w.priority, w.name)):
        lower = other.priority < judged.priority
        peer = equals and other.priority == judged.priority and not other.breached_on_queue
        held = other.sample.reserved_mean
        if other is not judged and (lower or peer) and held > DONOR_SHARE * evaluation.reserved:
            yield other


def increase(
    evaluation: Evaluation, judged: JudgedWorkload, reason: Reason, cause: str
) -> Verdict | None:
    """A whole step up."""
    tokens = _step_tokens(evaluation, judged)
    return _raise(evaluation, judged, tokens, judged.workload.highest, reason, cause)


def grow(
    evaluation: Evaluation, judged: JudgedWorkload, reason: Reason, cause: str
) -> Verdict | None:
    """A quarter of a step up, and for a while not back to a budget that had to be lowered: without
    that memory every climb would end in another broken window."""
    tokens = _step_tokens(evaluation, judged) // GROWTH_DIVISOR
    highest = judged.workload.highest
    last = evaluation.pool.last_decrease(judged.name)
    if last is not None and last.from_ is not None:
        tuning = evaluation.pool.autotune
        rest = max(tuning.cooldown_seconds, tuning.evaluation_period_seconds) * REMEMBERED_ROUNDS
        if evaluation.now - last.time.timestamp() < rest:
            highest = min(highest, int(last.from_ * SAFE_SHARE))
    return _raise(evaluation, judged, tokens, highest, reason, cause)


def _raise(
    evaluation: Evaluation,
    judged: JudgedWorkload,
    tokens: int,
    highest: int,
    reason: Reason,
    cause: str,
) -> Verdict | None:
    others = sum(other.claimed for other in evaluation.workloads if other is not judged)
    room = (evaluation.pool.capacity or 0) - others
    new = raised(
        judged.budget,
        tokens=tokens,
        lowest=judged.workload.lowest,
        highest=min(highest, room),
    )
    return None if new is None else _move(judged, Action.INCREASE, new, reason, cause)


def decrease(
    evaluation: Evaluation, donor: JudgedWorkload, reason: Reason, cause: str
) -> Verdict | None:
    new = lowered(
        donor.budget,
        tokens=_step_tokens(evaluation, donor),
        lowest=donor.workload.lowest,
        highest=donor.workload.highest,
    )
    return None if new is None else _move(donor, Action.DECREASE, new, reason, cause)


def _step_tokens(evaluation: Evaluation, judged: JudgedWorkload) -> int:
    return judged.budget * evaluation.pool.autotune.max_step_percent // 100


def _move(judged: JudgedWorkload, action: Action, new: int, reason: Reason, cause: str) -> Verdict:
    text = f"{words.change(judged.name, judged.budget, new)}: {cause}."
    return Verdict(judged.name, action, reason, text, judged.budget, new)


def hold(
    judged: JudgedWorkload, reason: Reason, message: str, *, exhausted: bool = False
) -> Verdict:
    return Verdict(judged.name, Action.HOLD, reason, message, exhausted=exhausted)


def permitted(evaluation: Evaluation, verdict: Verdict) -> Verdict:
    """The move, or the hold that stands in its way: cooldown, or the same advice given before."""
    if verdict.new is None:
        return verdict
    waiting = cooldown(evaluation.pool, verdict.workload, evaluation.now)
    if waiting is not None:
        return Verdict(verdict.workload, Action.HOLD, waiting.reason, waiting.message)
    workload = next(w for w in evaluation.pool.workloads if w.name == verdict.workload)
    if verdict.new == workload.recommended:
        text = f"Recommended already and not in force yet: {verdict.message}"
        return Verdict(verdict.workload, Action.HOLD, Reason.RECOMMENDATION_STANDS, text)
    return verdict
