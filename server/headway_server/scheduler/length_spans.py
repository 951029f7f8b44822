# SPDX-License-Identifier: Apache-2.0
"""A distribution of output lengths as weighted spans, and what it says of an answer under way."""

from collections.abc import Iterable
from dataclasses import dataclass

from headway_server.scheduler.length import Expectation

BOUND_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Span:
    """Lengths `low .. high` (inclusive), their weight and their mean."""

    weight: float
    low: int
    high: int
    mean: float

    def above(self, generated: int) -> "Span | None":
        """What is left of it for an answer longer than `generated`; a span that is cut is taken as
        evenly filled."""
        if self.high <= generated:
            return None
        if self.low > generated:
            return self
        share = (self.high - generated) / (self.high - self.low + 1)
        mean = max(self.mean, (generated + 1 + self.high) / 2)
        return Span(self.weight * share, generated + 1, self.high, mean)


def expectation_of(
    spans: Iterable[Span], generated: int, limit: int, enough: float
) -> Expectation | None:
    """E[min(L, limit) | L > generated] and the matching quantile; `spans` come in rising order.

    None where lengths above `generated` weigh less than `enough`.
    """
    tail = [left for span in spans if (left := span.above(generated))] if generated else [*spans]
    weight = sum(span.weight for span in tail)
    if weight <= 0 or weight < enough:
        return None
    mean = sum(span.weight * min(span.mean, limit) for span in tail) / weight
    tokens = min(limit, max(generated + 1, round(mean)))
    return Expectation(tokens, min(limit, max(tokens, quantile(tail, weight * BOUND_SHARE))))


def quantile(spans: list[Span], weight: float) -> int:
    """The end of the span in which the running sum of the weights reaches `weight`."""
    reached = 0.0
    for span in spans:
        reached += span.weight
        if reached >= weight:
            return span.high
    return spans[-1].high
