# SPDX-License-Identifier: Apache-2.0
"""The length predictor that is in force, and how often it is right.

All of them go on learning, so that a change of predictor does not start from nothing.
"""

from collections.abc import Mapping

from headway_server.scheduler.bins_accuracy import BinAccuracy, BinHits
from headway_server.scheduler.length import Expectation, LengthPredictor
from headway_server.scheduler.request import Request


class LengthChoice:
    """The one in force is judged by what it would say of an answer just before it is told.

    Raises KeyError for a name that is not among the `predictors`.
    """

    def __init__(self, predictors: Mapping[str, LengthPredictor], chosen: str, bins: int) -> None:
        self._predictors = predictors
        self._accuracy = {name: BinAccuracy() for name in predictors}
        self.choose(chosen, bins)

    def choose(self, chosen: str, bins: int) -> None:
        self._in_force = self._predictors[chosen]
        self.chosen = chosen
        self._bins = bins

    def hits(self) -> Mapping[str, BinHits]:
        """By predictor, each over the time in which it was in force."""
        return {name: accuracy.hits for name, accuracy in self._accuracy.items()}

    def expect(self, request: Request, generated: int = 0) -> Expectation:
        return self._in_force.expect(request, generated)

    def learn(self, request: Request, output_tokens: int) -> None:
        expected = self._in_force.expect(request).tokens
        self._accuracy[self.chosen].record(expected, output_tokens, self._bins)
        for predictor in self._predictors.values():
            predictor.learn(request, output_tokens)
