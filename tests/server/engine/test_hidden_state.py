# SPDX-License-Identifier: Apache-2.0
"""Lengths from hidden states: better than the history where they tell something, else the same."""

import math

import numpy as np

from headway_server.engine.hidden_state import HiddenState, class_of
from headway_server.engine.predictors import Predictors
from headway_server.scheduler import Formation, Request
from headway_server.scheduler.history import History

SIZE = 96
LIMIT = 1024


def asked(name: str, workload: str = "chat") -> Request:
    return Request(name, workload, "t", 10, LIMIT, arrival=0.0)


class Model:
    """A stand-in: the hidden state holds the length, in part, under noise, an offset common to all
    and a few dimensions that dwarf the others."""

    def __init__(self, tells: float) -> None:
        self._chance = np.random.default_rng(7)
        self._direction = self._chance.normal(size=SIZE) * tells
        self._common = self._chance.normal(size=SIZE) * 5
        self._scale = np.where(np.arange(SIZE) < 4, 100.0, 1.0)

    def answer(self) -> tuple[np.ndarray, int]:
        octave = self._chance.uniform(3, 9)
        noise = self._chance.normal(size=SIZE)
        hidden = (self._common + self._direction * (octave - 6) + noise) * self._scale
        return hidden.astype(np.float32), round(2**octave)


class Served:
    """A predictor that is asked and told as the engine would, and the history it starts from."""

    def __init__(self, tells: float, open_requests: int = 512) -> None:
        self.history = History()
        self.predictor = HiddenState(self.history, open_requests)
        self.model = Model(tells)
        self._answers = 0

    def serve(self, answers: int) -> list[tuple[int, int]]:
        """(expected, actual) of each."""
        pairs = []
        for _ in range(answers):
            self._answers += 1
            request = asked(f"{self._answers}")
            hidden, tokens = self.model.answer()
            self.predictor.observe(request, hidden)
            pairs.append((self.predictor.expect(request).tokens, tokens))
            self.history.learn(request, tokens)
            self.predictor.learn(request, tokens)
        return pairs


def error(pairs: list[tuple[int, int]]) -> float:
    return sum(abs(math.log2(expected / actual)) for expected, actual in pairs) / len(pairs)


def test_it_starts_from_the_history_and_takes_over_where_it_is_better() -> None:
    served = Served(tells=0.5)
    early = served.serve(40)
    assert {expected for expected, _ in early[:16]} == {LIMIT}
    served.serve(300)
    late = served.serve(300)
    by_history = served.history.expect(asked("x")).tokens
    assert error(late) < 0.6 * error([(by_history, actual) for _, actual in late])


def test_hidden_states_that_tell_nothing_change_nothing() -> None:
    served = Served(tells=0.0)
    served.serve(500)
    for index in range(100):
        request = asked(f"late-{index}")
        hidden, tokens = served.model.answer()
        served.predictor.observe(request, hidden)
        assert served.predictor.expect(request) == served.history.expect(request)
        served.predictor.learn(request, tokens)


def test_what_a_running_answer_outgrew_is_not_expected_any_more() -> None:
    served = Served(tells=0.5)
    served.serve(400)
    request = asked("running")
    served.predictor.observe(request, served.model.answer()[0])
    for generated in (0, 1, 7, 63, 64, 500, LIMIT - 1):
        expectation = served.predictor.expect(request, generated)
        assert generated < expectation.tokens <= expectation.bound <= LIMIT


def test_a_workload_in_which_it_has_not_won_is_left_to_the_history() -> None:
    served = Served(tells=0.5)
    served.serve(400)
    request = asked("other", workload="batch")
    served.predictor.observe(request, served.model.answer()[0])
    assert served.predictor.expect(request) == served.history.expect(request)


def test_the_same_lessons_give_the_same_expectations() -> None:
    first, second = (Served(tells=0.5).serve(200) for _ in range(2))
    assert first == second


def test_only_so_many_hidden_states_are_kept() -> None:
    served = Served(tells=0.5, open_requests=4)
    served.serve(100)
    kept = asked("kept")
    hidden = served.model.answer()[0]
    served.predictor.observe(kept, hidden)
    assert served.predictor.expect(kept) != served.history.expect(kept)
    for index in range(4):
        served.predictor.observe(asked(f"newer-{index}"), hidden)
    assert served.predictor.expect(kept) == served.history.expect(kept)


def test_a_broken_hidden_state_is_passed_over() -> None:
    served = Served(tells=0.5)
    served.serve(300)
    broken = asked("broken")
    served.predictor.observe(broken, np.full(SIZE, np.nan, np.float32))
    assert served.predictor.expect(broken) == served.history.expect(broken)
    served.predictor.learn(broken, 40)
    assert error(served.serve(100)) < 1


def test_a_prompt_that_is_computed_again_is_passed_over() -> None:
    served = Served(tells=0.5)
    served.serve(300)
    again = asked("again")
    again.replayed = 5
    served.predictor.observe(again, served.model.answer()[0])
    assert served.predictor.expect(again) == served.history.expect(again)


def test_hidden_states_are_learnt_from_while_their_predictor_is_in_force() -> None:
    predictors = Predictors(Formation(length_predictor="History"))
    model = Model(tells=0.5)
    for chosen in ("History", "HiddenState"):
        predictors.choose(chosen, bins=8)
        for index in range(300):
            request = asked(f"{chosen}-{index}")
            hidden, tokens = model.answer()
            predictors.observe(request, hidden)
            predictors.learn(request, tokens)
    hits = predictors.hits()
    assert hits["History"].predictions == hits["HiddenState"].predictions == 300 - 32
    assert hits["HiddenState"].adjacent > 1.5 * hits["History"].adjacent


def test_classes_are_octaves() -> None:
    assert [class_of(tokens) for tokens in (0, 1, 2, 3, 4, 1023, 1024)] == [0, 0, 1, 1, 2, 9, 10]
    assert class_of(2**40) == 19
