# SPDX-License-Identifier: Apache-2.0
"""The do-nothing rules: when a pool, a window or a change must be left alone, and the sentence
that says so.

A knob moved on bad evidence costs users latency; a knob not moved costs one period. So every
doubt is a hold, and each rule answers None where it has no objection.
"""

from dataclasses import dataclass

from headway_api.conditions import ConditionType
from headway_autotune.decision import Reason
from headway_autotune.observation import Observation, Window
from headway_autotune.pool import TunedPool


@dataclass(frozen=True, slots=True)
class Hold:
    reason: Reason
    message: str


_EXPECTED = (
    (ConditionType.AVAILABLE, "True", Reason.NOT_AVAILABLE, "the pool is not available"),
    (ConditionType.PROGRESSING, "False", Reason.ROLLING_OUT, "a rollout is under way"),
    (
        ConditionType.RUNTIME_CONFIG_SYNCED,
        "True",
        Reason.NOT_SYNCED,
        "not every replica has confirmed its values",
    ),
)


def before_observing(pool: TunedPool, window: Window, settle_seconds: float) -> Hold | None:
    """The state of the pool alone. `settle_seconds`: how old a sample may be that stands for the
    start of the window; it must be taken after the values in force were."""
    if pool.paused:
        return Hold(Reason.PAUSED, "Reconciliation is paused by annotation.")
    if pool.observed_generation < pool.generation:
        text = f"The operator has not acted on generation {pool.generation} yet."
        return Hold(Reason.SPEC_NOT_OBSERVED, text)
    if pool.ready_replicas == 0:
        return Hold(Reason.NO_REPLICAS, "No replica is ready.")
    return _conditions(pool) or _settled(pool, window, settle_seconds)


def _conditions(pool: TunedPool) -> Hold | None:
    for kind, expected, reason, sentence in _EXPECTED:
        condition = pool.conditions.get(kind)
        if condition is None:
            return Hold(reason, f"Waiting: {sentence}: condition {kind} is not set yet.")
        if condition.status != expected:
            detail = condition.message or condition.reason
            return Hold(reason, f"Waiting: {sentence}: {detail}")
    return None


def _settled(pool: TunedPool, window: Window, settle_seconds: float) -> Hold | None:
    if pool.capacity is None:
        return Hold(Reason.CAPACITY_UNKNOWN, "No replica has reported its KV capacity yet.")
    if pool.last_applied is None or pool.revision is None:
        return Hold(Reason.NOT_SYNCED, "The values in force have never been confirmed.")
    earliest = pool.last_applied + pool.autotune.warmup_seconds + settle_seconds
    if window.start < earliest:
        seconds = round(earliest - window.start)
        text = f"The window opens {seconds} s before the values in force had settled."
        return Hold(Reason.WARMING_UP, text)
    return None


def on_measurements(pool: TunedPool, observation: Observation) -> Hold | None:
    """The window as it was measured."""
    if observation.gap is not None:
        return Hold(Reason(observation.gap.defect.value), observation.gap.message)
    measured, ready = observation.replicas, pool.ready_replicas
    if measured != ready:
        text = f"{measured} replicas were measured, {ready} are ready."
        fewer = measured < ready
        return Hold(Reason.PARTIALLY_SCRAPED if fewer else Reason.REPLICAS_CHANGED, text)
    return None


def cooldown(pool: TunedPool, workload: str, now: float) -> Hold | None:
    """One workload's value may not move again so soon."""
    changed = pool.last_change(workload)
    if changed is None or now - changed >= pool.autotune.cooldown_seconds:
        return None
    left = round(pool.autotune.cooldown_seconds - (now - changed))
    return Hold(Reason.COOLDOWN, f"{workload} was changed lately; {left} s of cooldown are left.")


def kv_usage(pool: TunedPool, observation: Observation) -> Hold | None:
    """More budget is no use to anybody once the KV cache is full."""
    if observation.kv_usage_percent <= pool.autotune.max_kv_usage_percent:
        return None
    text = (
        f"KV usage is {observation.kv_usage_percent:.0f} %, above the"
        f" {pool.autotune.max_kv_usage_percent} % up to which budgets may be raised."
    )
    return Hold(Reason.KV_USAGE_HIGH, text)
