# SPDX-License-Identifier: Apache-2.0
"""From one pool and one window to one decision: guards first, then the step.

Pure: the same pool, observation and time always give the same decision, which is what makes a
restart harmless and a simulation meaningful.
"""

from headway_autotune.decision import Action, Decision, Verdict
from headway_autotune.evaluation import evaluate
from headway_autotune.guards import Hold, before_observing, on_measurements
from headway_autotune.observation import Observation, Window
from headway_autotune.pool import TunedPool
from headway_autotune.step import step


def due_at(pool: TunedPool, settle_seconds: float) -> float:
    """When the next window ends: one period after the last, but not before a whole period has
    passed since the values in force were confirmed and warm. 0 for a pool never evaluated."""
    if pool.last_evaluated is None:
        return 0.0
    period = pool.autotune.evaluation_period_seconds
    settled = (pool.last_applied or 0.0) + pool.autotune.warmup_seconds + settle_seconds
    return max(pool.last_evaluated, settled) + period


def window_ending(pool: TunedPool, now: float) -> Window:
    return Window(now - pool.autotune.evaluation_period_seconds, now)


def objection(pool: TunedPool, now: float, settle_seconds: float) -> Hold | None:
    """Why the pool need not even be observed."""
    return before_observing(pool, window_ending(pool, now), settle_seconds)


def decide_unobserved(pool: TunedPool, hold: Hold, now: float) -> Decision:
    return _blocked(pool, hold, now, None)


def decide(pool: TunedPool, observation: Observation, now: float) -> Decision:
    """`observation` is of a window to which `objection` had none."""
    hold = on_measurements(pool, observation)
    if hold is not None:
        return _blocked(pool, hold, now, observation)
    evaluation = evaluate(pool, observation, now)
    return Decision(
        time=now,
        verdicts=step(evaluation),
        blocked=None,
        observation=observation,
        judgements={judged.name: judged.judgements for judged in evaluation.workloads},
    )


def _blocked(pool: TunedPool, hold: Hold, now: float, observation: Observation | None) -> Decision:
    verdicts = tuple(
        Verdict(workload.name, Action.HOLD, hold.reason, hold.message)
        for workload in pool.workloads
    )
    return Decision(now, verdicts, hold.reason, observation, {})
