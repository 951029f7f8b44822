# SPDX-License-Identifier: Apache-2.0
"""The sentences that the tuner puts into status, events and its log."""

from typing import Final

from headway_autotune.attainment import Judgement
from headway_autotune.evaluation import JudgedWorkload

PARAMETER: Final = "maxBatchTotalTokens"


def change(workload: str, old: int, new: int) -> str:
    return f"{workload}: {PARAMETER} {old} -> {new}"


def attained(judgement: Judgement) -> str:
    """One objective in the window, with its threshold, its target and the number of samples."""
    count, objective = judgement.count, judgement.count.objective
    if judgement.attainment is None:
        return f"nothing was judged by {objective.metric}"
    samples = "token gaps" if objective.metric == "ITL" else "requests"
    text = (
        f"{100 * judgement.attainment:.1f} % of {count.total} {samples} had {objective.metric}"
        f" within {objective.threshold_milliseconds} ms, {objective.percentile} % should"
    )
    if count.observed_milliseconds is not None:
        text += f" (p{objective.percentile} is {count.observed_milliseconds} ms)"
    return text


def breaches(judged: JudgedWorkload) -> str:
    return "; ".join(attained(judgement) for judgement in judged.breached)


def standings(judged: JudgedWorkload) -> str:
    return "; ".join(attained(judgement) for judgement in judged.judgements)
