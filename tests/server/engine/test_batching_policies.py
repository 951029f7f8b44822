# SPDX-License-Identifier: Apache-2.0
"""The whole engine under each batching policy, with the server's own predictors of lengths."""

from typing import Any

import pytest
from tests.server.engine.paged_runner import answer

from headway_server.engine.predictors import Predictors
from headway_server.scheduler import Formation


@pytest.mark.parametrize("runs_ahead", [False, True])
@pytest.mark.parametrize("policy", ["Static", "Dynamic", "MultiBin"])
def test_all_are_answered_in_batches_of_the_size_that_was_set(
    bench: Any, settings: Any, policy: Any, runs_ahead: bool
) -> None:
    formation = Formation(policy, max_batch_size=2, max_delay_seconds=0.0, bins=2)
    driver = bench(
        settings(formation=formation), runs_ahead=runs_ahead, lengths=Predictors(formation)
    )
    asked = [(driver.submit(prompt=5 + size, output=size), size) for size in (4, 1, 9, 2, 3, 7, 1)]
    while driver.inbox.open_requests:
        driver.turn()
        assert driver.core.snapshot().running <= 2
    for request, size in asked:
        assert driver.tokens(request) == answer(range(5 + size), size)


def test_an_idle_engine_waits_for_a_batch_to_fill_no_longer_than_was_set(
    bench: Any, settings: Any
) -> None:
    formation = Formation("MultiBin", max_batch_size=4, max_delay_seconds=0.5)
    driver = bench(settings(formation=formation), lengths=Predictors(formation))
    request = driver.submit(output=2)
    driver.turns(2)
    assert driver.core.snapshot().waiting == 1
    driver.clock.advance(0.5)
    driver.turns(2)
    assert len(driver.tokens(request)) == 2


def test_the_hits_of_the_predictor_in_force_are_shown(bench: Any, settings: Any) -> None:
    driver = bench(settings(), lengths=Predictors(Formation()))
    for _ in range(40):
        driver.submit(output=3)
    driver.run_to_the_end()
    hits = driver.core.snapshot().length_hits
    assert {name: each.predictions for name, each in hits.items()} == {
        "History": 40 - 32,
        "HiddenState": 0,
        "MaxTokens": 0,
    }
