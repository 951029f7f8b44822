# SPDX-License-Identifier: Apache-2.0
"""Layer 1: additive increase, multiplicative decrease of one workload's `maxBatchTotalTokens`.

It must stay a pure function of one window, and return at most one move.

Who moves. The breached workload of the highest priority is served first. Token latency (TPOT, ITL)
depends on everybody in the batch, so its cure is a smaller batch: a donor gives budget, lowest
priority first, the breached workload itself last. Time to the first token (TTFT, QueueTime, E2E) is
cured by the workload's own budget when that is what holds its queue back, and by a lower-priority
donor when KV or nothing visible does: the batch is then full of somebody else's tokens.

How far. A correction is a whole step (`maxStepPercent`); growth for throughput is a quarter of one,
so that one correction undoes about four of them, and stays clear of what had to be corrected.
"""

from dataclasses import replace

from headway_autotune import words
from headway_autotune.attainment import Standing
from headway_autotune.binding import Binding, binding
from headway_autotune.decision import Reason, Verdict
from headway_autotune.evaluation import Evaluation, JudgedWorkload
from headway_autotune.moves import (
    decrease,
    donors,
    grow,
    hold,
    increase,
    objection_to_raise,
    permitted,
)

_HELD_BACK = {
    Binding.GATE: (Reason.GATE_BOUND, "the waiting-served ratio holds its queue back"),
    Binding.PREFILL_BUDGET: (Reason.PREFILL_BOUND, "the prefill budget holds its queue back"),
    Binding.LIMIT: (Reason.LIMIT_BOUND, "its admission limits hold its queue back"),
}


def step(evaluation: Evaluation) -> tuple[Verdict, ...]:
    """One verdict per workload, in the order of the pool; at most one of them moves."""
    found: dict[str, Verdict] = {}
    mover = None
    for judged in evaluation.breached:
        verdict = permitted(evaluation, _cure(evaluation, judged))
        if verdict.moves:
            mover = verdict
            break
        found[judged.name] = replace(verdict, workload=judged.name)
    if not evaluation.breached:
        mover = _grow(evaluation)
    if mover is not None:
        found[mover.workload] = mover
    return tuple(
        found.get(judged.name) or _at_rest(judged, mover) for judged in evaluation.workloads
    )


def _cure(evaluation: Evaluation, judged: JudgedWorkload) -> Verdict:
    if judged.breached_on_decode:
        return _shorten_steps(evaluation, judged)
    bound = binding(judged.sample)
    if bound is Binding.BUDGET:
        return _raise_own(evaluation, judged)
    if bound in _HELD_BACK:
        reason, cause = _HELD_BACK[bound]
        return hold(judged, reason, f"{words.breaches(judged)}; {cause}, not its token budget.")
    return _free_the_batch(evaluation, judged, bound)


def _shorten_steps(evaluation: Evaluation, judged: JudgedWorkload) -> Verdict:
    """The own budget goes down only if that does not starve the own queue."""
    starved = judged.breached_on_queue and binding(judged.sample) in (Binding.BUDGET, Binding.KV)
    cause = words.breaches(judged)
    givers = [*donors(evaluation, judged, equals=True), *(() if starved else (judged,))]
    for donor in givers:
        reason = Reason.DECODE_BOUND if donor is judged else Reason.BATCH_INTERFERENCE
        move = decrease(evaluation, donor, reason, f"for {judged.name}, {cause}")
        if move is not None:
            return move
    if starved:
        text = f"{cause}: a smaller batch would lengthen the queue further; add replicas."
        return hold(judged, Reason.OBJECTIVES_CONFLICT, text, exhausted=True)
    text = f"{cause}: every budget that could give is at its lower bound."
    return hold(judged, Reason.AT_BOUNDS, text, exhausted=True)


def _free_the_batch(evaluation: Evaluation, judged: JudgedWorkload, bound: Binding) -> Verdict:
    cause = words.breaches(judged)
    if bound is Binding.KV:
        text = f"{cause}: the KV cache is full and no lower priority can give; add replicas."
        full = hold(judged, Reason.KV_BOUND, text, exhausted=True)
        return _take(evaluation, judged, Reason.MAKES_ROOM) or full
    text = f"{cause}: its token budget does not bind, so a larger one would not help."
    unbound = hold(judged, Reason.NOT_BINDING, text)
    return _take(evaluation, judged, Reason.BATCH_INTERFERENCE) or unbound


def _raise_own(evaluation: Evaluation, judged: JudgedWorkload) -> Verdict:
    """Where the raise would do harm or has no room, a lower priority gives first."""
    cause = words.breaches(judged)
    objection = objection_to_raise(evaluation, judged)
    if objection is not None:
        short = objection.reason is not Reason.HIGHER_PRIORITY_FIRST
        text = f"{cause}: {objection.message}"
        refused = hold(judged, objection.reason, text, exhausted=short)
        return (_take(evaluation, judged, Reason.MAKES_ROOM) if short else None) or refused
    blocked = judged.sample.blocked.get(Binding.BUDGET, 0)
    raised = increase(
        evaluation,
        judged,
        Reason.QUEUE_BOUND,
        f"{cause}; its budget held the queue back in {blocked} steps",
    )
    if raised is not None:
        return raised
    text = f"{cause}: {judged.budget} tokens is all it may have; add replicas or widen its bounds."
    spent = hold(judged, Reason.AT_BOUNDS, text, exhausted=True)
    at_bound = judged.budget >= judged.workload.highest
    return (None if at_bound else _take(evaluation, judged, Reason.MAKES_ROOM)) or spent


def _take(evaluation: Evaluation, judged: JudgedWorkload, reason: Reason) -> Verdict | None:
    """The first lower priority that holds tokens and can give budget gives a step."""
    for donor in donors(evaluation, judged, equals=False):
        cause = f"for {judged.name}, {words.breaches(judged)}"
        move = decrease(evaluation, donor, reason, cause)
        if move is not None:
            return move
    return None


def _grow(evaluation: Evaluation) -> Verdict | None:
    """Growth for throughput, once every objective that saw traffic holds with a proven margin."""
    if not _all_proven(evaluation):
        return None
    for judged in sorted(evaluation.workloads, key=lambda w: (-w.priority, w.name)):
        wanted = judged.workload.wants_throughput and binding(judged.sample) is Binding.BUDGET
        if not wanted or objection_to_raise(evaluation, judged) is not None:
            continue
        cause = "every objective holds with a margin and its budget holds the queue back"
        if judged.judgements:
            cause += f"; {words.standings(judged)}"
        move = grow(evaluation, judged, Reason.THROUGHPUT_HEADROOM, cause)
        if move is not None and (verdict := permitted(evaluation, move)).moves:
            return verdict
    return None


def _all_proven(evaluation: Evaluation) -> bool:
    judgements = [
        judgement
        for judged in evaluation.workloads
        for judgement in judged.judgements
        if judgement.count.total
    ]
    return bool(judgements) and all(
        judgement.standing is Standing.HELD and judgement.proven for judgement in judgements
    )


def _at_rest(judged: JudgedWorkload, mover: Verdict | None) -> Verdict:
    """Why this workload's budget stays, when nothing else has been said about it."""
    standings = {judgement.standing for judgement in judged.judgements}
    if judged.breached:
        change = mover.message if mover else "nothing can be done for a higher priority"
        return hold(judged, Reason.OTHER_CHANGE_FIRST, f"One change at a time: {change}")
    if not judged.judgements:
        return hold(judged, Reason.NO_OBJECTIVES, "No objective is declared.")
    if judged.sample.completed == 0:
        return hold(judged, Reason.NO_TRAFFIC, "No request ended in the window.")
    if Standing.UNKNOWN in standings:
        text = f"Too few requests ended in the window to judge: {words.standings(judged)}."
        return hold(judged, Reason.INSUFFICIENT_SAMPLES, text)
    if Standing.NEAR in standings:
        text = f"Within the dead band: {words.standings(judged)}."
        return hold(judged, Reason.IN_DEAD_BAND, text)
    return hold(judged, Reason.OBJECTIVES_HELD, f"Held: {words.standings(judged)}.")
