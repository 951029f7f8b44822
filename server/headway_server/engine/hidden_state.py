# SPDX-License-Identifier: Apache-2.0
"""Expected output lengths read from the model's own hidden state after the prompt.

A softmax regression from the last prompt token's hidden state to classes of output length, trained
while it serves, on each answer that ends. It speaks only where it has lately been better than the
history it starts from; it never draws a random number, and its cost a request is bounded.
"""

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway_server.scheduler.length import Expectation, LengthPredictor
from headway_server.scheduler.length_spans import Span, expectation_of
from headway_server.scheduler.request import Request

Floats = NDArray[np.float32]

CLASSES = 20
"""Class c holds the lengths from 2^c up to below 2^(c + 1); the last one all that is longer."""
CLASS_MEMORY = 16
"""Answers over which the mean length of a class is taken."""
CONTEST_MEMORY = 50
"""Answers over which the two predictors are compared."""
CLEARLY_BETTER = 0.95
"""By chance alone a classifier that learnt nothing comes a few percent below the history."""
LEARNING_RATE = 2.0
"""Features have length 1, so the loss curves at most by 1/2 and gradient steps below 4 settle."""


def class_of(tokens: int) -> int:
    return min(max(1, tokens).bit_length(), CLASSES) - 1


def softmax(scores: Floats) -> Floats:
    """Along the last axis."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    normalised: Floats = powers / powers.sum(axis=-1, keepdims=True)
    return normalised


class Features:
    """Hidden states with each dimension brought to mean 0 and variance 1 over those seen of late,
    then to length 1: models differ in scale, and a few dimensions dwarf the others."""

    def __init__(self, size: int, memory: int = 200) -> None:
        self._memory = memory
        self._seen = 0
        self._mean = np.zeros(size, np.float32)
        self._variance = np.zeros(size, np.float32)

    def of(self, hidden: Floats) -> Floats:
        self._seen += 1
        share = np.float32(1 / min(self._seen, self._memory))
        offset = hidden - self._mean
        self._mean += share * offset
        self._variance += share * (offset * (hidden - self._mean) - self._variance)
        features: Floats = (hidden - self._mean) / np.sqrt(self._variance + np.float32(1e-6))
        features /= max(float(np.linalg.norm(features)), 1e-6)
        return features


class LengthClassifier:
    """Each answer is learnt together with the next few of the `remembered` last ones, in turn."""

    def __init__(self, size: int, remembered: int = 128, rehearsed: int = 8) -> None:
        self._weights = np.zeros((size, CLASSES), np.float32)
        self._bias = np.zeros(CLASSES, np.float32)
        self._features = np.zeros((remembered, size), np.float32)
        self._classes = np.zeros(remembered, np.intp)
        self._rehearsed = rehearsed
        self._learnt = 0
        self._turn = 0

    def probabilities(self, features: Floats) -> Floats:
        return softmax(features @ self._weights + self._bias)

    def learn(self, features: Floats, length_class: int) -> None:
        newest = self._learnt % len(self._classes)
        self._features[newest] = features
        self._classes[newest] = length_class
        self._learnt += 1
        self._step(np.append(self._next_rehearsed(), newest))

    def _next_rehearsed(self) -> NDArray[np.intp]:
        known = min(self._learnt, len(self._classes))
        chosen = (self._turn + np.arange(min(self._rehearsed, known))) % known
        self._turn = (self._turn + len(chosen)) % known
        return chosen.astype(np.intp)

    def _step(self, chosen: NDArray[np.intp]) -> None:
        features = self._features[chosen]
        error = -self.probabilities(features)
        error[np.arange(len(chosen)), self._classes[chosen]] += 1
        error *= np.float32(LEARNING_RATE / len(chosen))
        self._weights += features.T @ error
        self._bias += error.sum(axis=0)


class Learner:
    """The classifier with what it sees and what its classes mean, for one hidden size."""

    def __init__(self, size: int) -> None:
        self.features = Features(size)
        self.classifier = LengthClassifier(size)
        self._class_means = [1.5 * 2**c for c in range(CLASSES)]

    def spans(self, probabilities: Floats) -> Iterator[Span]:
        for c, probability in enumerate(probabilities.tolist()):
            yield Span(probability, 1 << c, (2 << c) - 1, self._class_means[c])

    def learn(self, features: Floats, output_tokens: int) -> None:
        length_class = class_of(output_tokens)
        offset = output_tokens - self._class_means[length_class]
        self._class_means[length_class] += offset / CLASS_MEMORY
        self.classifier.learn(features, length_class)


@dataclass(frozen=True, slots=True)
class Guess:
    """What was said of one open request, to be judged and learnt from at its end."""

    features: Floats
    spans: tuple[Span, ...]
    own: int
    by_history: int


@dataclass(slots=True)
class Contest:
    """Which of the two was nearer of late, by the mean error in octaves. Older rounds fade."""

    rounds: int = 0
    own: float = 0.0
    by_history: float = 0.0

    def judge(self, guess: Guess, output_tokens: int) -> None:
        self.rounds += 1
        share = 1 / min(self.rounds, CONTEST_MEMORY)
        self.own += share * (octaves(guess.own, output_tokens) - self.own)
        self.by_history += share * (octaves(guess.by_history, output_tokens) - self.by_history)

    @property
    def is_won(self) -> bool:
        return self.rounds >= CONTEST_MEMORY and self.own < CLEARLY_BETTER * self.by_history


class HiddenState:
    """`history` answers where no hidden state is known yet or the classifier has not won in the
    request's workload; it is taught by whoever owns it. The hidden states of the `open_requests`
    newest requests are kept until they are learnt from; those that end without an answer are
    pushed out."""

    def __init__(self, history: LengthPredictor, open_requests: int = 512) -> None:
        self._history = history
        self._learner: Learner | None = None
        self._guesses: OrderedDict[str, Guess] = OrderedDict()
        self._open_requests = open_requests
        self._contests: dict[str, Contest] = {}

    def observe(self, request: Request, hidden: Floats) -> None:
        """`hidden` [hidden size] is the last layer's output at the last prompt token; the size is
        always the same. What is not finite tells nothing and is passed over, and so is what comes
        of a preemption: it ends in the answer."""
        if request.replayed or not np.isfinite(hidden).all():
            return
        self._learner = self._learner or Learner(len(hidden))
        features = self._learner.features.of(hidden)
        probabilities = self._learner.classifier.probabilities(features)
        spans = tuple(self._learner.spans(probabilities))
        own = expectation_within(spans, 0, request.max_new_tokens)
        by_history = self._history.expect(request)
        self._guesses[request.request_id] = Guess(features, spans, own.tokens, by_history.tokens)
        while len(self._guesses) > self._open_requests:
            self._guesses.popitem(last=False)

    def expect(self, request: Request, generated: int = 0) -> Expectation:
        guess = self._guesses.get(request.request_id)
        contest = self._contests.get(request.workload)
        if guess is None or contest is None or not contest.is_won:
            return self._history.expect(request, generated)
        return expectation_within(guess.spans, generated, request.max_new_tokens)

    def learn(self, request: Request, output_tokens: int) -> None:
        guess = self._guesses.pop(request.request_id, None)
        if guess and self._learner:
            self._contests.setdefault(request.workload, Contest()).judge(guess, output_tokens)
            self._learner.learn(guess.features, output_tokens)


def expectation_within(spans: Sequence[Span], generated: int, limit: int) -> Expectation:
    return expectation_of(spans, generated, limit, enough=0.0) or Expectation(limit, limit)


def octaves(expected: int, actual: int) -> float:
    return abs(math.log2(max(1, expected) / max(1, actual)))
