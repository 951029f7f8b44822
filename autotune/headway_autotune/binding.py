# SPDX-License-Identifier: Apache-2.0
"""What holds a workload's queue back: the evidence without which no budget may be raised.

The server counts, step by step, why the head of a queue did not join the batch. That makes the
cause a fact and not an inference from latencies.
"""

from enum import StrEnum

from headway_autotune.observation import WorkloadSample

FULL_SHARE = 0.95
APP_LIMITED_SHARE = 0.5


class Binding(StrEnum):
    """The values are the server's `reason` labels, but for NOTHING."""

    BUDGET = "budget"
    KV = "kv"
    GATE = "gate"
    PREFILL_BUDGET = "prefill_budget"
    LIMIT = "limit"
    NOTHING = "nothing"


def binding(sample: WorkloadSample) -> Binding:
    """The reason that held the queue's head back most often.

    Of equals the budget wins, since it is the one that can be moved. Without any such count a
    queue in front of a budget that is full to 95 % still means the budget.
    """
    if app_limited(sample):
        return Binding.NOTHING
    reasons = [reason for reason in Binding if sample.blocked.get(reason, 0) > 0]
    if reasons:
        return max(reasons, key=lambda reason: sample.blocked[reason])
    full = sample.reserved_peak >= FULL_SHARE * sample.budget
    return Binding.BUDGET if full and sample.waiting > 0 else Binding.NOTHING


def app_limited(sample: WorkloadSample) -> bool:
    """Clients ask for less than half of the budget and nobody waits: the window says nothing about
    a larger one (the rule of Netflix's concurrency limits)."""
    idle = sample.reserved_mean < APP_LIMITED_SHARE * sample.budget
    return idle and sample.waiting == 0 and not any(sample.blocked.values())
