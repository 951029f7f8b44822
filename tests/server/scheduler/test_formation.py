# SPDX-License-Identifier: Apache-2.0
"""What each batching policy does, and how they compare over the same requests."""

import random
from typing import Any

import pytest
from tests.server.scheduler.floor import Floor, request

from headway_server.scheduler.settings import Formation


def floor(policy: Any, slots: int = 100, **values: Any) -> Floor:
    return Floor(Formation(policy=policy, **values), slots, step_seconds=1.0)


def test_static_runs_a_batch_to_its_end_before_the_next() -> None:
    engine = floor("Static", max_batch_size=2)
    engine.arrive(request("a", 1), request("b", 5), request("c", 1))
    engine.run()
    assert engine.admissions == [(0, "a"), (0, "b"), (5, "c")]


def test_static_takes_a_partial_batch_and_lets_nobody_join_it() -> None:
    engine = floor("Static", max_batch_size=4)
    engine.arrive(request("a", 3))
    engine.step()
    engine.arrive(request("b", 1, arrival=1))
    engine.run()
    assert engine.admissions == [(0, "a"), (3, "b")]


def test_a_static_batch_that_does_not_fit_at_once_is_completed_as_room_comes_free() -> None:
    engine = floor("Static", slots=2, max_batch_size=3)
    engine.arrive(request("a", 2), request("b", 5), request("c", 1), request("d", 1))
    engine.run()
    assert engine.admissions == [(0, "a"), (0, "b"), (2, "c"), (5, "d")]


def test_dynamic_joins_what_runs_after_the_longest_wait_and_never_beyond_the_batch() -> None:
    engine = floor("Dynamic", max_batch_size=2, max_delay_seconds=3.0)
    engine.arrive(request("a", 9))
    engine.step()
    engine.arrive(*(request(name, 4, arrival=1) for name in "bc"))
    engine.run()
    assert engine.admissions == [(0, "a"), (4, "b"), (8, "c")]


def test_dynamic_forms_at_once_when_the_engine_is_free() -> None:
    engine = floor("Dynamic", max_batch_size=2, max_delay_seconds=100.0)
    engine.arrive(request("a", 1), request("b", 3), request("c", 1))
    engine.run()
    assert engine.admissions == [(0, "a"), (0, "b"), (3, "c")]


def test_multi_bin_batches_what_is_alike() -> None:
    engine = floor("MultiBin", max_batch_size=4, bins=2, max_delay_seconds=0.0)
    engine.arrive(
        *(request(f"{kind}{i}", n) for i in range(4) for kind, n in (("s", 3), ("l", 90)))
    )
    engine.run()
    assert [name[0] for _, name in engine.admissions] == ["s"] * 4 + ["l"] * 4
    assert engine.steps == 93


def test_a_multi_bin_batch_that_does_not_fill_is_taken_when_it_is_due() -> None:
    engine = floor("MultiBin", max_batch_size=4, bins=2, max_delay_seconds=7.0)
    engine.arrive(request("a", 3, arrival=2.0))
    engine.step()
    assert engine.former
    assert (engine.running, engine.former.due()) == ({}, 9.0)
    engine.run()
    assert engine.admissions == [(9.0, "a")]


def test_a_full_bin_does_not_wait_for_the_delay() -> None:
    engine = floor("MultiBin", max_batch_size=2, bins=1, max_delay_seconds=1000.0)
    engine.arrive(request("a", 3), request("b", 3))
    engine.step()
    assert set(engine.running) == {"a", "b"}


def test_a_lonely_long_request_is_served_among_endless_short_ones() -> None:
    """A batch of short ones fills every fourth step and takes three."""
    engine = floor("MultiBin", max_batch_size=4, bins=4, max_delay_seconds=40.0)
    engine.arrive(*(request(f"before-{i}", 2 + i % 2) for i in range(16)), request("long", 500))
    turn = 0
    while "long" not in engine.running:
        engine.arrive(request(f"{turn}", 2 + turn % 2, arrival=engine.now))
        engine.step()
        turn += 1
    assert turn < 60


@pytest.mark.parametrize("policy", ["Static", "Dynamic", "MultiBin"])
def test_a_cancelled_request_is_not_released(policy: str) -> None:
    engine = floor(policy, max_batch_size=1, max_delay_seconds=0.0)
    engine.arrive(*(request(name, 2) for name in "abc"))
    engine.step()
    engine.cancel("b")
    engine.run()
    assert [name for _, name in engine.admissions] == ["a", "c"]


@pytest.mark.parametrize("policy", ["Static", "Dynamic", "MultiBin"])
def test_who_arrived_first_is_released_first_in_whatever_order_they_are_told(policy: str) -> None:
    engine = floor(policy, max_batch_size=1, bins=1, max_delay_seconds=0.0)
    engine.arrive(*(request(f"{arrival}", 1, arrival) for arrival in (-1, -5, -3, -2, -4)))
    engine.run()
    assert [name for _, name in engine.admissions] == ["-5", "-4", "-3", "-2", "-1"]


def test_many_cancelled_requests_leave_nothing_behind() -> None:
    engine = floor("Static", max_batch_size=1)
    engine.arrive(request("first", 9), request("second", 1))
    engine.step()
    for index in range(1000):
        engine.arrive(request(f"{index}", 1, arrival=1))
        engine.cancel(f"{index}")
    engine.run()
    assert [name for _, name in engine.admissions] == ["first", "second"]


def served(policy: Any, lengths: list[int]) -> tuple[int, float]:
    """Steps in all, and the mean of the steps after which a request had its answer."""
    engine = Floor(Formation(policy=policy, max_batch_size=8, bins=8), slots=8)
    engine.arrive(*(request(f"r{index}", tokens) for index, tokens in enumerate(lengths)))
    engine.run()
    assert engine.left_at.keys() == {f"r{index}" for index in range(len(lengths))}
    return engine.steps, sum(engine.left_at.values()) / len(lengths)


def test_the_order_of_the_policies_over_bursts() -> None:
    """64 requests a burst, 8 slots, 8 to 160 output tokens whose number is known beforehand."""
    chance = random.Random(1)
    bursts = [[round(8 * 20 ** chance.random()) for _ in range(64)] for _ in range(10)]
    steps, latency = {}, {}
    for policy in ("Static", "MultiBin", "Continuous"):
        results = [served(policy, lengths) for lengths in bursts]
        steps[policy] = sum(each for each, _ in results)
        latency[policy] = sum(each for _, each in results)
    assert steps["Static"] > steps["MultiBin"] > steps["Continuous"]
    assert steps["Continuous"] >= sum(map(sum, bursts)) / 8
    assert latency["MultiBin"] < latency["Static"]
