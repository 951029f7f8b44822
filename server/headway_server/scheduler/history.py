# SPDX-License-Identifier: Apache-2.0
"""Expected output lengths from the answers that were given before to requests of the same kind.

Histograms are kept per workload, tenant and prompt group, and the most specific one that has seen
enough answers. Its memory is bounded, whatever tenants send; it never asks for the time: old
answers fade as new ones come in.
"""

from bisect import bisect_right
from collections import OrderedDict

from headway_server.scheduler.length import Expectation
from headway_server.scheduler.length_spans import Span, expectation_of
from headway_server.scheduler.request import Request

Key = tuple[str | int, ...]


def geometric_edges(growth: float, end: int) -> tuple[int, ...]:
    """1, 2, 3 and so on, one apart at first, then each about `growth` times the one before."""
    edges = [1]
    while edges[-1] < end:
        edges.append(max(edges[-1] + 1, int(edges[-1] * growth)))
    return tuple(edges)


EDGES = geometric_edges(growth=1.2, end=1 << 20)
LARGEST_UNIT = 1e12
LARGEST_LAG = 1 / 16
"""Share of what a histogram knows that its spans may lag behind: they cost more than an answer."""


class DecayedHistogram:
    """Lengths in log-spaced buckets. After `half_life` further answers one weighs half."""

    def __init__(self, half_life: float) -> None:
        self._half_life = half_life
        self._growth = 2 ** (1 / half_life)
        self._answers = 0
        self._spans: tuple[Span, ...] = ()
        self._spans_until = 0.0
        self._unit = 1.0
        self._weight: dict[int, float] = {}
        self._tokens: dict[int, float] = {}

    def add(self, tokens: int) -> None:
        """New answers gain weight instead of old ones losing it: one bucket is touched, not all."""
        bucket = min(bisect_right(EDGES, max(1, tokens)), len(EDGES) - 1) - 1
        self._answers += 1
        self._unit *= self._growth
        self._weight[bucket] = self._weight.get(bucket, 0.0) + self._unit
        self._tokens[bucket] = self._tokens.get(bucket, 0.0) + self._unit * tokens
        if self._unit > LARGEST_UNIT:
            self._rescale()

    def spans(self) -> tuple[Span, ...]:
        """Weights are in answers: the newest one weighs 1."""
        if self._answers >= self._spans_until:
            known = min(self._answers, self._half_life)
            self._spans_until = self._answers + max(1, known * LARGEST_LAG)
            self._spans = tuple(map(self._span, sorted(self._weight)))
        return self._spans

    def _span(self, bucket: int) -> Span:
        weight = self._weight[bucket]
        mean = self._tokens[bucket] / weight
        return Span(weight / self._unit, EDGES[bucket], EDGES[bucket + 1] - 1, mean)

    def _rescale(self) -> None:
        for values in (self._weight, self._tokens):
            for bucket in values:
                values[bucket] /= self._unit
        self._unit = 1.0


class History:
    """Back-off: workload + tenant + prompt group, workload + tenant, workload, `max_new_tokens`.

    A histogram is heeded if at least `enough` answers in it were longer than what is made already,
    so that the expectation for a running answer backs off too when it outgrows all that was seen.
    The `most_kinds` histograms that learnt last are kept.
    """

    def __init__(
        self, enough: float = 16.0, half_life: float = 512.0, most_kinds: int = 4096
    ) -> None:
        self._enough = enough
        self._half_life = half_life
        self._most_kinds = most_kinds
        self._histograms: OrderedDict[Key, DecayedHistogram] = OrderedDict()

    @property
    def kinds(self) -> int:
        return len(self._histograms)

    def expect(self, request: Request, generated: int = 0) -> Expectation:
        limit = request.max_new_tokens
        for key in keys_of(request):
            if histogram := self._histograms.get(key):
                spans = histogram.spans()
                if expectation := expectation_of(spans, generated, limit, self._enough):
                    return expectation
        return Expectation(limit, limit)

    def learn(self, request: Request, output_tokens: int) -> None:
        """The widest kind is touched last, so that a flood of prompt groups cannot push it out."""
        for key in keys_of(request):
            histogram = self._histograms.setdefault(key, DecayedHistogram(self._half_life))
            histogram.add(output_tokens)
            self._histograms.move_to_end(key)
        while len(self._histograms) > self._most_kinds:
            self._histograms.popitem(last=False)


def keys_of(request: Request) -> tuple[Key, Key, Key]:
    workload, tenant = request.workload, request.tenant
    return (workload, tenant, request.prompt_group), (workload, tenant), (workload,)
