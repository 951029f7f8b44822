# SPDX-License-Identifier: Apache-2.0
"""Output tokens a second with prefill in the time, for several batch sizes, ours and the peers'.

One group of contenders a batch size, measured in turn. The answers of the engine's last run of the
ratios' batch are handed on, to be checked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from headway_bench.engine.contender import Contender, check_lengths
from headway_bench.engine.figures import OUTPUT_TOKENS, Measured
from headway_bench.engine.repetitions import Say, Series, interleaved, ratio_details, rounded
from headway_bench.engine.requests import BenchRequest

UNIT = "output tok/s"


@dataclass(frozen=True, slots=True)
class Rival:
    """`figure` is the name of the ratio over this contender at `batch` requests: the engine's, or
    that of `ours`, an engine loaded for this comparison."""

    figure: str
    batch: int
    contender: Contender
    ours: Contender | None = None


@dataclass(slots=True)
class Throughput:
    """`requests` has the mixed requests of each batch size; `answers` what the engine last made."""

    ours: Contender
    rivals: Sequence[Rival]
    requests: dict[int, list[BenchRequest]]
    repeats: int
    say: Say
    answers: dict[int, list[list[int]]] = field(default_factory=dict)

    def measure(self) -> list[Measured]:
        ours: dict[int, Series] = {}
        ratios = []
        for batch in sorted(self.requests):
            rivals = [rival for rival in self.rivals if rival.batch == batch]
            series = self._batch(batch, rivals)
            ours[batch] = series[self.ours.name]
            for rival in rivals:
                own = rival.ours or self.ours
                ratios.append(ratio(rival, series[own.name], series[rival.contender.name], own))
        return [*ratios, absolute(ours, self.ours.settings)]

    def _batch(self, batch: int, rivals: Sequence[Rival]) -> dict[str, Series]:
        requests = self.requests[batch]
        prompt, output = (
            sum(len(r.prompt) for r in requests),
            sum(r.output_tokens for r in requests),
        )
        self.say(f"batch {batch}: {prompt} prompt tokens, {output} output tokens")
        own = [rival.ours for rival in rivals if rival.ours]
        contenders = [self.ours, *own, *(rival.contender for rival in rivals)]
        for contender in contenders:
            contender.serve([BenchRequest(r.prompt[:8], 2) for r in requests[:2]])
        return interleaved(
            {contender.name: partial(self._run, contender, batch) for contender in contenders},
            self.repeats,
            self.say,
            UNIT,
        )

    def _run(self, contender: Contender, batch: int) -> float:
        served = contender.serve(self.requests[batch])
        check_lengths(contender.name, self.requests[batch], served)
        if contender is self.ours:
            self.answers[batch] = served.answers
        return served.tokens_per_second


def ratio(rival: Rival, ours: Series, theirs: Series, own: Contender) -> Measured:
    details = ratio_details(
        ours,
        theirs,
        batch=rival.batch,
        peer=rival.contender.name,
        ourSettings=own.settings,
        peerSettings=rival.contender.settings,
        unit=UNIT,
    )
    return Measured(rival.figure, rounded(ours.over(theirs).median), details)


def absolute(ours: dict[int, Series], settings: dict[str, Any]) -> Measured:
    """The named figure is that of the largest batch; the details have all of them."""
    by_batch = {str(batch): series.as_json() for batch, series in ours.items()}
    value = ours[max(ours)].median
    details = {"byBatch": by_batch, "unit": UNIT, "settings": settings}
    return Measured(OUTPUT_TOKENS, rounded(value), details)
