# SPDX-License-Identifier: Apache-2.0
"""One round of the step loop at a time, with everything that may happen in between."""

from collections.abc import Sequence
from typing import Any

import pytest

from headway_server.engine.messages import Finish, Sampling
from headway_server.runner.protocol import Row, RunnerLost
from headway_server.scheduler import Blocked, Refusal


def test_tokens_come_one_a_step_and_the_last_says_length(bench: Any) -> None:
    driver = bench()
    request = driver.submit(output=3)
    driver.turns(3)
    assert [len(output.token_ids) for output in driver.outputs[request]] == [1, 1, 1]
    assert [output.finish for output in driver.outputs[request]] == [None, None, Finish.LENGTH]


def test_a_stop_token_ends_the_answer_and_is_not_part_of_it(bench: Any) -> None:
    driver = bench()
    reference = driver.submit(output=4)
    driver.run_to_the_end()
    tokens = driver.tokens(reference)
    request = driver.submit(output=4, stop_token_ids=frozenset(tokens[2:3]))
    driver.run_to_the_end()
    stop_at = tokens.index(tokens[2])
    assert driver.tokens(request) == tokens[:stop_at]
    assert driver.last(request).finish == Finish.STOP


def test_an_answer_does_not_depend_on_its_neighbours_or_on_chunks(bench: Any) -> None:
    alone = bench()
    expected = alone.submit(prompt=21, output=6)
    alone.run_to_the_end()
    crowd = bench()
    for size in range(1, 6):
        crowd.submit(prompt=size, output=9)
    crowd.turn()
    request = crowd.submit(prompt=21, output=6)
    crowd.run_to_the_end()
    assert crowd.tokens(request) == alone.tokens(expected)


def test_the_runner_gets_every_prompt_token_once_and_then_each_new_token(bench: Any) -> None:
    driver = bench()
    rows: list[Row] = []
    driver.runner.during_step = rows.extend
    request = driver.submit(prompt=19, output=3)
    driver.run_to_the_end()
    assert [(row.start, len(row.token_ids), row.samples) for row in rows] == [
        (0, 8, False),
        (8, 8, False),
        (16, 3, True),
        (19, 1, True),
        (20, 1, True),
    ]
    assert [row.token_ids[0] for row in rows[3:]] == driver.tokens(request)[:2]
    assert len(rows[-1].block_table) == 6
    assert all(row.block_table == rows[-1].block_table[: len(row.block_table)] for row in rows)


def test_two_requests_never_hold_the_same_block(bench: Any) -> None:
    driver = bench(kv_tokens=48, prefix=False)

    def check(batch: Sequence[Row]) -> None:
        blocks = [block for row in batch for block in row.block_table]
        assert len(blocks) == len(set(blocks))
        assert max(blocks) < 12

    driver.runner.during_step = check
    requests = [driver.submit(prompt=3, output=size) for size in (2, 9, 5, 13, 3, 3, 8, 4)]
    driver.run_to_the_end()
    assert {driver.last(request).finish for request in requests} == {Finish.LENGTH}
    assert driver.core.snapshot().kv_used_tokens == 0


def test_queue_time_is_told_once_with_the_first_token(bench: Any, settings: Any) -> None:
    driver = bench(settings(max_running=1))
    driver.submit(output=2)
    second = driver.submit(output=3)
    started = driver.clock.now
    driver.turns(2)
    waited = driver.clock.now - started
    driver.run_to_the_end()
    told = [output.queue_seconds for output in driver.outputs[second]]
    assert told == [pytest.approx(waited), None, None]


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_a_cancelled_request_ends_as_aborted_and_frees_its_place_at_the_next_step(
    turns: int, bench: Any, settings: Any
) -> None:
    driver = bench(settings(max_running=1))
    first, second = driver.submit(prompt=12, output=50), driver.submit(output=2)
    driver.turns(turns)
    driver.cancel(first)
    driver.turn()
    assert driver.last(first).finish == Finish.ABORT
    assert driver.core.snapshot().kv_used_tokens == 8
    driver.run_to_the_end()
    assert driver.last(second).finish == Finish.LENGTH


def test_a_cancel_during_a_step_comes_before_that_steps_token(bench: Any) -> None:
    driver = bench()
    request = driver.submit(output=2)
    driver.turn()
    driver.runner.during_step = lambda batch: driver.cancel(request)
    driver.turn()
    assert len(driver.tokens(request)) == 1
    assert driver.last(request).finish == Finish.ABORT


def test_cancelling_what_is_unknown_or_over_does_nothing(bench: Any) -> None:
    driver = bench()
    request = driver.submit(output=1)
    driver.run_to_the_end()
    driver.cancel(request)
    driver.cancel("never seen")
    driver.turn()
    assert driver.last(request).finish == Finish.LENGTH


def test_a_deadline_ends_a_request_in_the_queue_or_running(bench: Any, settings: Any) -> None:
    driver = bench(settings(max_running=1))
    running = driver.submit(output=300, deadline=driver.clock.now + 2)
    driver.turn()
    waiting = driver.submit(output=300, deadline=driver.clock.now + 1)
    driver.run_to_the_end()
    assert 2 <= driver.clock.now - 100 < 2.1
    for request in (running, waiting):
        assert driver.last(request).finish == Finish.DEADLINE
        assert "deadline" in driver.last(request).error
    assert driver.tokens(running)
    assert not driver.tokens(waiting)
    assert driver.last(waiting).queue_seconds is None


def test_a_request_that_waits_too_long_is_refused(bench: Any, settings: Any) -> None:
    driver = bench(settings(max_running=1, queue_timeout_seconds=1.0))
    running, waiting = driver.submit(output=100), driver.submit()
    driver.run_to_the_end()
    assert driver.last(running).finish == Finish.LENGTH
    assert driver.last(waiting).finish == Finish.REFUSED
    assert driver.last(waiting).refusal == Refusal.QUEUE_TIMEOUT


@pytest.mark.parametrize(
    ("values", "refusal"),
    [
        ({"output": 396}, Refusal.TOO_LARGE),
        ({"prompt": ()}, Refusal.INVALID),
        ({"prompt": (50,)}, Refusal.INVALID),
        ({"prompt": (-1,)}, Refusal.INVALID),
        ({"workload": "other"}, Refusal.UNKNOWN_WORKLOAD),
    ],
)
def test_a_bad_request_is_refused_with_a_sentence_and_the_others_go_on(
    values: dict[str, Any], refusal: Refusal, bench: Any
) -> None:
    driver = bench()
    good, bad = driver.submit(), driver.submit(**values)
    driver.turn()
    assert driver.last(bad).refusal == refusal
    assert driver.last(bad).error
    driver.run_to_the_end()
    assert driver.last(good).finish == Finish.LENGTH


def test_a_failed_step_fails_its_requests_and_nothing_else(bench: Any, settings: Any) -> None:
    driver = bench(settings(max_running=2))
    hit = [driver.submit(output=9), driver.submit(output=9)]
    spared = driver.submit(output=2)
    driver.turn()

    def fail(batch: Sequence[Row]) -> None:
        driver.runner.during_step = None
        raise ValueError("no such layer")

    driver.runner.during_step = fail
    driver.turn()
    for request in hit:
        assert driver.last(request).finish == Finish.ERROR
        assert "ValueError: no such layer" in driver.last(request).error
    driver.run_to_the_end()
    assert driver.last(spared).finish == Finish.LENGTH
    assert driver.core.snapshot().kv_used_tokens == 0


def test_a_lost_runner_ends_the_loop(bench: Any) -> None:
    driver = bench()

    def fail(batch: Sequence[Row]) -> None:
        raise RunnerLost("the device is gone")

    driver.runner.during_step = fail
    driver.submit()
    with pytest.raises(RunnerLost):
        driver.turn()


def test_settings_come_into_force_between_steps_and_evict_nobody(bench: Any, settings: Any) -> None:
    driver = bench()
    first, second = driver.submit(output=20), driver.submit(output=20)
    driver.turn()
    driver.inbox.tell(settings("r2", budget=25))
    waiting = driver.submit(output=20)
    driver.turn()
    state = driver.core.snapshot()
    assert state.revision == "r2"
    assert state.workloads["chat"].knobs.max_batch_total_tokens == 25
    assert (state.running, state.waiting) == (2, 1)
    assert state.workloads["chat"].blocked[Blocked.BUDGET] == 1
    driver.run_to_the_end()
    for request in (first, second, waiting):
        assert driver.last(request).finish == Finish.LENGTH


def test_a_waiting_request_that_new_settings_cannot_hold_is_refused(
    bench: Any, settings: Any
) -> None:
    driver = bench(settings(max_running=1))
    driver.submit(output=20)
    large = driver.submit(output=30)
    driver.turn()
    driver.inbox.tell(settings("r2", budget=25))
    driver.turn()
    assert driver.last(large).refusal == Refusal.TOO_LARGE


def test_the_state_counts_what_happened(bench: Any) -> None:
    driver = bench()
    driver.submit(prompt=12, output=20)
    driver.turns(2)
    driver.submit(prompt=4, output=20)
    driver.turns(2)
    state = driver.core.snapshot()
    steps = state.steps
    assert (steps.prefill, steps.mixed, steps.decode, steps.steps) == (2, 1, 1, 4)
    assert steps.prompt_tokens == 16
    assert steps.generated_tokens == 4 + 1
    assert steps.seconds_sum == pytest.approx(driver.clock.now - 100)
    assert sum(steps.bucket_counts) == 4
    assert state.workloads["chat"].reserved_tokens == 32 + 24
    assert state.workloads["chat"].batch_tokens == 12 + 4 + 5
    assert state.workloads["chat"].oldest_waiting_since is None
    assert steps.prefill_seconds + steps.decode_seconds + steps.mixed_seconds == pytest.approx(
        steps.seconds_sum
    )
    assert min(steps.prefill_seconds, steps.decode_seconds, steps.mixed_seconds) > 0
    assert (state.kv_capacity_tokens, state.kv_reserved_tokens) == (400, 56)
    assert state.kv_used_tokens == 16 + 8
    assert state.last_progress == driver.clock.now


def test_a_request_without_a_seed_gets_one_and_a_given_seed_stays(bench: Any) -> None:
    driver = bench()
    seeds: list[int | None] = []
    driver.runner.during_step = lambda batch: seeds.extend(row.sampling.seed for row in batch)
    driver.submit(output=1)
    driver.run_to_the_end()
    driver.submit(output=1, sampling=Sampling(seed=3))
    driver.run_to_the_end()
    assert seeds == [7, 3]
