# SPDX-License-Identifier: Apache-2.0
"""Lengths from hidden states: better than the history where they tell something, else the same."""

import math

import numpy as np

from headway_server.engine.hidden_state import HiddenState, class_of
from headway_server.scheduler import Request
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


def serve(predictor: HiddenState, model: Model, answers: int) -> list[tuple[int, int]]:
    """(expected, actual) of each, as the engine would have asked for it."""
    pairs = []
    for index in range(answers):
        hidden, tokens = model.answer()
        request = asked(f"{answers}-{index}")
        predictor.observe(request, hidden)
        pairs.append((predictor.expect(request).tokens, tokens))
        predictor.learn(request, tokens)
    return pairs


def error(pairs: list[tuple[int, int]]) -> float:
    return sum(abs(math.log2(expected / actual)) for expected, actual in pairs) / len(pairs)


def test_it_starts_from_the_history_and_takes_over_where_it_is_better() -> None:
    predictor = HiddenState(History(), SIZE)
    model = Model(tells=0.5)
    early = serve(predictor, model, 40)
    assert {expected for expected, _ in early[:16]} == {LIMIT}
    serve(predictor, model, 300)
    late = serve(predictor, model, 300)
    by_history = predictor.history.expect(asked("x")).tokens
    assert error(late) < 0.6 * error([(by_history, actual) for _, actual in late])


def test_hidden_states_that_tell_nothing_change_nothing() -> None:
    predictor = HiddenState(History(), SIZE)
    model = Model(tells=0.0)
    serve(predictor, model, 500)
    for index in range(100):
        hidden, tokens = model.answer()
        request = asked(f"late-{index}")
        predictor.observe(request, hidden)
        assert predictor.expect(request) == predictor.history.expect(request)
        predictor.learn(request, tokens)


def test_what_a_running_answer_outgrew_is_not_expected_any_more() -> None:
    predictor = HiddenState(History(), SIZE)
    model = Model(tells=0.5)
    serve(predictor, model, 400)
    request = asked("running")
    predictor.observe(request, model.answer()[0])
    for generated in (0, 1, 7, 63, 64, 500, LIMIT - 1):
        expectation = predictor.expect(request, generated)
        assert generated < expectation.tokens <= expectation.bound <= LIMIT


def test_a_workload_in_which_it_has_not_won_is_left_to_the_history() -> None:
    predictor = HiddenState(History(), SIZE)
    model = Model(tells=0.5)
    serve(predictor, model, 400)
    request = asked("other", workload="batch")
    predictor.observe(request, model.answer()[0])
    assert predictor.expect(request) == predictor.history.expect(request)


def test_the_same_lessons_give_the_same_expectations() -> None:
    first, second = (serve(HiddenState(History(), SIZE), Model(tells=0.5), 200) for _ in range(2))
    assert first == second


def test_only_so_many_hidden_states_are_kept() -> None:
    predictor = HiddenState(History(), SIZE, open_requests=4)
    serve(predictor, Model(tells=0.5), 100)
    kept = asked("kept")
    hidden = Model(tells=0.5).answer()[0]
    predictor.observe(kept, hidden)
    own = predictor.expect(kept)
    assert own != predictor.history.expect(kept)
    for index in range(4):
        predictor.observe(asked(str(index)), hidden)
    assert predictor.expect(kept) == predictor.history.expect(kept)


def test_a_broken_hidden_state_is_passed_over() -> None:
    predictor = HiddenState(History(), SIZE)
    model = Model(tells=0.5)
    serve(predictor, model, 300)
    predictor.observe(asked("broken"), np.full(SIZE, np.nan, np.float32))
    predictor.learn(asked("broken"), 40)
    assert error(serve(predictor, model, 100)) < 1


def test_classes_are_octaves() -> None:
    assert [class_of(tokens) for tokens in (0, 1, 2, 3, 4, 1023, 1024)] == [0, 0, 1, 1, 2, 9, 10]
    assert class_of(2**40) == 19
