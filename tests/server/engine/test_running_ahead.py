# SPDX-License-Identifier: Apache-2.0
"""A step is launched before the last one's tokens are here, and nothing that is told changes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.server.engine.guess import Guess
from tests.server.engine.paged_runner import answer

from headway_server.engine.messages import Finish, Sampling
from headway_server.runner.protocol import Row


class OnlyEven:
    """A grammar of even tokens that keeps what it accepted."""

    def __init__(self) -> None:
        self.accepted: list[int] = []
        self.refuses = False
        self.breaks = False

    def fill(self, mask: NDArray[np.int32]) -> None:
        mask[:] = 0x55555555

    def accept(self, token: int) -> bool:
        if self.breaks:
            raise ValueError("no such rule")
        self.accepted.append(token)
        return not self.refuses


@pytest.fixture
def rows() -> list[Row]:
    return []


@pytest.fixture
def ahead(bench: Any, rows: list[Row]) -> Any:
    driver = bench(runs_ahead=True)
    driver.runner.during_step = rows.extend
    return driver


def test_the_token_that_is_not_here_yet_is_carried(ahead: Any, rows: list[Row]) -> None:
    request = ahead.submit(prompt=5, output=4)
    ahead.run_to_the_end()
    assert [(row.token_ids, row.carried) for row in rows] == [
        ((0, 1, 2, 3, 4), False),
        ((0,), True),
        ((0,), True),
        ((0,), True),
    ]
    assert [row.start for row in rows] == [0, 5, 6, 7]
    assert ahead.tokens(request) == answer(range(5), 4)


def test_a_step_is_launched_before_the_last_one_is_told(ahead: Any, rows: list[Row]) -> None:
    request = ahead.submit(output=3)
    ahead.turn()
    assert (len(rows), len(ahead.tokens(request))) == (1, 0)
    ahead.turn()
    assert (len(rows), len(ahead.tokens(request))) == (2, 1)


def test_no_step_more_than_needed_is_launched_when_the_length_is_the_end(
    ahead: Any, rows: list[Row]
) -> None:
    ahead.submit(output=3)
    ahead.run_to_the_end()
    ahead.turn_if_in_flight()
    assert len(rows) == 3


def test_after_a_stop_token_the_step_under_way_tells_nothing(ahead: Any) -> None:
    expected = answer(range(5), 6)
    stop = expected[2]
    request = ahead.submit(output=6, stop_token_ids=frozenset({stop}))
    ahead.run_to_the_end()
    ahead.turn_if_in_flight()
    assert ahead.tokens(request) == expected[: expected.index(stop)]
    assert ahead.last(request).finish == Finish.STOP
    state = ahead.core.snapshot()
    assert (state.kv_used_tokens, state.workloads["chat"].cancelled_tokens) == (0, 0)


def test_a_cancel_goes_before_the_tokens_of_both_steps_and_they_are_counted(ahead: Any) -> None:
    request = ahead.submit(output=9)
    other = ahead.submit(prompt=3, output=9)
    ahead.turns(3)
    assert len(ahead.tokens(request)) == 2
    ahead.cancel(request)
    ahead.turn()
    assert ahead.last(request).finish == Finish.ABORT
    assert len(ahead.tokens(request)) == 2
    ahead.run_to_the_end()
    assert ahead.core.snapshot().workloads["chat"].cancelled_tokens == 1
    assert ahead.tokens(other) == answer(range(3), 9)


def test_a_cancel_while_a_step_runs_ends_with_that_step(ahead: Any) -> None:
    request = ahead.submit(output=9)
    ahead.turns(2)
    ahead.runner.before_result = lambda: ahead.cancel(request)
    ahead.turn()
    ahead.runner.before_result = None
    assert ahead.last(request).finish == Finish.ABORT
    assert ahead.core.snapshot().kv_reserved_tokens == 0
    ahead.turn_if_in_flight()
    assert ahead.core.snapshot().workloads["chat"].cancelled_tokens == 2


def test_a_deadline_that_passes_while_a_step_runs_goes_before_its_token(ahead: Any) -> None:
    request = ahead.submit(output=9, deadline=ahead.clock.now + 0.5)
    ahead.turns(2)
    told = len(ahead.tokens(request))
    ahead.clock.advance(1.0)
    ahead.turn()
    assert ahead.last(request).finish == Finish.DEADLINE
    assert len(ahead.tokens(request)) == told
    ahead.turn_if_in_flight()
    assert ahead.core.snapshot().workloads["chat"].cancelled_tokens >= 1


@pytest.mark.parametrize("late", [False, True])
def test_a_step_that_fails_takes_its_own_requests_and_the_next_step_goes_on(
    late: bool, ahead: Any
) -> None:
    first = ahead.submit(prompt=5, output=9)
    ahead.turns(2)
    second = ahead.submit(prompt=6, output=4)
    ahead.turn()

    def fail(*_: Any) -> None:
        ahead.runner.during_step = ahead.runner.before_result = None
        raise ValueError("no such layer")

    if late:
        ahead.runner.before_result = fail
    else:
        ahead.runner.during_step = fail
    third = ahead.submit(prompt=7, output=4)
    ahead.turn()
    ahead.run_to_the_end()
    ends = {name: ahead.last(name).finish for name in (first, second, third)}
    assert ends[first] == Finish.ERROR
    assert ends[third] == (Finish.LENGTH if late else Finish.ERROR)
    assert ahead.tokens(first) == answer(range(5), len(ahead.tokens(first)))
    if late:
        assert ahead.tokens(third) == answer(range(7), 4)
    assert ahead.core.snapshot().kv_used_tokens == 0


def test_a_grammar_sees_each_token_before_the_next_one_is_drawn(
    ahead: Any, rows: list[Row]
) -> None:
    grammar = OnlyEven()
    request = ahead.submit(output=5, matcher=grammar)
    beside = ahead.submit(prompt=3, output=9)
    ahead.run_to_the_end()
    assert ahead.tokens(request) == grammar.accepted
    assert all(token % 2 == 0 for token in grammar.accepted)
    assert not any(row.carried for row in rows if row.matcher)
    assert any(row.carried for row in rows)
    assert ahead.tokens(beside) == answer(range(3), 9)


@pytest.mark.parametrize("fault", ["refuses", "breaks"])
def test_a_grammar_that_fails_ends_its_own_request_only(fault: str, ahead: Any) -> None:
    grammar = OnlyEven()
    setattr(grammar, fault, True)
    request = ahead.submit(output=5, matcher=grammar)
    beside = ahead.submit(prompt=3, output=4)
    ahead.run_to_the_end()
    assert ahead.last(request).finish == Finish.ERROR
    assert "grammar" in ahead.last(request).error
    assert ahead.last(beside).finish == Finish.LENGTH


def test_penalties_get_the_whole_answer_so_far(ahead: Any) -> None:
    seen: list[tuple[int, ...]] = []

    def look(batch: Sequence[Row]) -> None:
        for row in batch:
            assert row.history is not None
            assert tuple(row.history[0]) == tuple(range(5))
            seen.append(tuple(row.history[1]))

    ahead.runner.during_step = look
    request = ahead.submit(prompt=5, output=4, sampling=Sampling(presence_penalty=0.5))
    ahead.run_to_the_end()
    tokens = tuple(ahead.tokens(request))
    assert seen == [tokens[:count] for count in range(4)]


def test_no_stop_token_is_drawn_before_the_shortest_answer_that_was_asked_for(ahead: Any) -> None:
    expected = answer(range(5), 3)
    stops = frozenset(expected)
    request = ahead.submit(output=8, stop_token_ids=stops, min_new_tokens=3)
    ahead.run_to_the_end()
    tokens = ahead.tokens(request)
    assert len(tokens) >= 3
    assert not stops & set(tokens)


def test_the_prediction_of_lengths_sees_each_prompt_once_and_hears_of_its_end(
    bench: Any, settings: Any
) -> None:
    lengths = Guess(50)
    driver = bench(runs_ahead=True, lengths=lengths)
    driver.runner.hidden = True
    requests = [driver.submit(prompt=size, output=3) for size in (3, 20)]
    gone = driver.submit(prompt=4, output=50)
    driver.turns(6)
    driver.cancel(gone)
    driver.run_to_the_end()
    assert sorted(lengths.observed) == sorted([*requests, gone])
    assert lengths.learnt == dict.fromkeys(requests, 3)
    assert lengths.chosen == [("History", 8)]
