# SPDX-License-Identifier: Apache-2.0
"""Submits, cancels, failures and new settings at any moment, also while steps are under way."""

from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from tests.server.engine.guess import Guess
from tests.server.engine.paged_runner import answer

from headway_server.engine.messages import Finish
from headway_server.runner.protocol import Row
from headway_server.scheduler import Formation

# Few different prompts, so that prefixes are found again.
action = st.one_of(
    st.tuples(st.just("submit"), st.integers(1, 20), st.integers(1, 12)),
    st.tuples(st.just("submit"), st.sampled_from((9, 17)), st.integers(1, 12)),
    st.tuples(st.just("cancel"), st.integers(0, 10), st.just(0)),
    st.tuples(st.just("budget"), st.integers(32, 80), st.just(0)),
    st.tuples(st.just("fail"), st.just(0), st.just(0)),
    st.tuples(st.just("fail late"), st.just(0), st.just(0)),
)
script = st.lists(st.tuples(st.sampled_from(("before", "during")), action), max_size=40)
formations = st.builds(
    Formation,
    output_reservation=st.sampled_from(("Expected", "Full")),
    length_aware=st.booleans(),
)


@given(
    script=script,
    formation=formations,
    runs_ahead=st.booleans(),
    prefix=st.booleans(),
    guess=st.integers(1, 6),
)
@hypothesis_settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_every_request_ends_once_with_the_tokens_it_would_get_alone(
    script: list[tuple[str, tuple[str, int, int]]],
    formation: Formation,
    runs_ahead: bool,
    prefix: bool,
    guess: int,
    bench: Any,
    settings: Any,
) -> None:
    lengths = Guess(guess)
    driver = bench(settings(budget=60, formation=formation), 48, runs_ahead, lengths, prefix)
    sizes: dict[str, tuple[int, int]] = {}
    cancelled: set[str] = set()
    fail_next = ""

    def act(kind: str, first: int, second: int) -> None:
        nonlocal fail_next
        if kind == "submit":
            tenant = "tu"[len(sizes) % 2]
            sizes[driver.submit(prompt=first, output=second, tenant=tenant)] = (first, second)
        elif kind == "cancel":
            cancelled.add(f"r{first}")
            driver.cancel(f"r{first}")
        elif kind == "budget":
            driver.inbox.tell(settings("r2", budget=first, formation=formation))
        else:
            fail_next = kind

    def during_step(batch: Sequence[Row]) -> None:
        while script and script[0][0] == "during":
            act(*script.pop(0)[1])
        fail("fail")

    def fail(kind: str) -> None:
        nonlocal fail_next
        if fail_next == kind:
            fail_next = ""
            raise ValueError("a step failed")

    driver.runner.during_step = during_step
    driver.runner.before_result = lambda: fail("fail late")
    while script:
        act(*script.pop(0)[1])
        if driver.inbox.open_requests:
            driver.turn()
    driver.run_to_the_end()

    for request_id, (prompt, output) in sizes.items():
        finish = driver.last(request_id).finish
        assert finish != Finish.ABORT or request_id in cancelled
        tokens = driver.tokens(request_id)
        assert len(tokens) <= output
        if finish == Finish.LENGTH:
            assert len(tokens) == output
            assert lengths.learnt[request_id] == output
        assert tokens == answer(range(prompt), len(tokens))
    driver.turn_if_in_flight()
    state = driver.core.snapshot()
    assert (state.running, state.waiting) == (0, 0)
    assert (state.kv_used_tokens, state.kv_reserved_tokens) == (0, 0)
