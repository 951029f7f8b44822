# SPDX-License-Identifier: Apache-2.0
"""The length predictor that is in force, and how often it is right.

All of them go on learning, so that a change of predictor does not start from nothing.
"""

from collections.abc import Mapping

from headway_server.scheduler.bins_accuracy import BinAccuracy
from headway_server.scheduler.length import Expectation, LengthPredictor
from headway_server.scheduler.request import Request


class LengthChoice:
    """`accuracy` judges the one in force, by what it would say of an answer just before it is
    told. Raises KeyError for a name that is not among the `predictors`."""

    def __init__(self, predictors: Mapping[str, LengthPredictor], chosen: str, bins: int) -> None:
        self._predictors = predictors
        self.chosen = chosen
        self._bins = bins
        self._in_force = predictors[chosen]
        self.accuracy = BinAccuracy(bins)

    def choose(self, chosen: str, bins: int) -> None:
        """The counters start anew if either is another than before: they would mix the two."""
        if (chosen, bins) != (self.chosen, self._bins):
            self.chosen, self._bins = chosen, bins
            self._in_force = self._predictors[chosen]
            self.accuracy = BinAccuracy(bins)

    def expect(self, request: Request, generated: int = 0) -> Expectation:
        return self._in_force.expect(request, generated)

    def learn(self, request: Request, output_tokens: int) -> None:
        self.accuracy.record(self._in_force.expect(request).tokens, output_tokens)
        for predictor in self._predictors.values():
            predictor.learn(request, output_tokens)
