# SPDX-License-Identifier: Apache-2.0
"""Submits, cancels, failures and new settings at any moment, also while a step runs."""

from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings

from headway_server.engine.messages import Finish
from headway_server.runner.protocol import Row

action = st.one_of(
    st.tuples(st.just("submit"), st.integers(1, 20), st.integers(1, 12)),
    st.tuples(st.just("cancel"), st.integers(0, 10), st.just(0)),
    st.tuples(st.just("budget"), st.integers(32, 80), st.just(0)),
    st.tuples(st.just("fail"), st.just(0), st.just(0)),
)
script = st.lists(st.tuples(st.sampled_from(("before", "during")), action), max_size=40)


@given(script=script)
@hypothesis_settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_every_request_ends_once_with_the_tokens_it_would_get_alone(
    script: list[tuple[str, tuple[str, int, int]]], bench: Any, settings: Any
) -> None:
    driver = bench(settings(budget=60), kv_tokens=64)
    sizes: dict[str, tuple[int, int]] = {}
    cancelled: set[str] = set()
    fail_next = False

    def act(kind: str, first: int, second: int) -> None:
        nonlocal fail_next
        if kind == "submit":
            sizes[driver.submit(prompt=first, output=second)] = (first, second)
        elif kind == "cancel":
            cancelled.add(f"r{first}")
            driver.cancel(f"r{first}")
        elif kind == "budget":
            driver.inbox.tell(settings("r2", budget=first))
        else:
            fail_next = True

    def during_step(batch: Sequence[Row]) -> None:
        nonlocal fail_next
        while script and script[0][0] == "during":
            act(*script.pop(0)[1])
        if fail_next:
            fail_next = False
            raise ValueError("a step failed")

    driver.runner.during_step = during_step
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
        assert tokens == alone(driver.runner, prompt, len(tokens))
    state = driver.core.snapshot()
    assert (state.running, state.waiting, state.kv_used_tokens) == (0, 0, 0)


def alone(runner: Any, prompt: int, tokens: int) -> list[int]:
    """What the simulated model says to this prompt with nobody else there."""
    answer: list[int] = []
    last = prompt - 1
    for position in range(prompt, prompt + tokens):
        last = runner._tokens[hash((last, position)) % len(runner._tokens)]
        answer.append(last)
    return answer
