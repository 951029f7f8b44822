# SPDX-License-Identifier: Apache-2.0
"""What users of other servers ran into: each of these must go right here."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.server.engine.guess import Guess
from tests.server.engine.paged_runner import answer

from headway_server.engine.messages import Finish, Refusal, Sampling
from headway_server.runner.protocol import Row, StepTooLarge
from headway_server.scheduler import Formation

EXPECTED = Formation(output_reservation="Expected")


@pytest.fixture
def tight(bench: Any, settings: Any) -> Any:
    """12 blocks of 4 tokens, and answers that are expected to be short."""

    def build(**values: Any) -> Any:
        return bench(settings(formation=EXPECTED), kv_tokens=48, lengths=Guess(2), **values)

    return build


@pytest.mark.parametrize("runs_ahead", [False, True])
def test_eight_growing_sequences_in_twelve_blocks_all_get_their_whole_answers(
    runs_ahead: bool, tight: Any
) -> None:
    driver = tight(runs_ahead=runs_ahead)
    requests = {driver.submit(prompt=5, output=20 + size): 20 + size for size in range(8)}
    preempted = 0
    for _ in range(2000):
        if not driver.inbox.open_requests:
            break
        before = driver.core.snapshot().steps.steps
        driver.turns(1 + runs_ahead)
        state = driver.core.snapshot()
        assert state.steps.steps > before, "a step that brings nobody on"
        preempted = state.preemptions
    for request, output in requests.items():
        assert driver.last(request).finish == Finish.LENGTH
        assert driver.tokens(request) == answer(range(5), output)
    assert 0 < preempted <= 2 * len(requests)
    assert state.workloads["chat"].preemptions == preempted
    assert driver.core.snapshot().kv_reserved_tokens == 0


def test_a_preempted_request_tells_its_queue_time_once_and_no_token_twice(tight: Any) -> None:
    driver = tight()
    requests = [driver.submit(prompt=5, output=30) for _ in range(3)]
    driver.run_to_the_end()
    assert driver.core.snapshot().preemptions
    for request in requests:
        assert driver.tokens(request) == answer(range(5), 30)
        told = [output.queue_seconds for output in driver.outputs[request]]
        assert [seconds is not None for seconds in told] == [True] + [False] * 29


def test_a_preempted_request_can_be_cancelled_and_frees_all_it_had(tight: Any) -> None:
    driver = tight()
    requests = [driver.submit(prompt=5, output=30) for _ in range(3)]
    while not driver.core.snapshot().preemptions:
        driver.turn()
    for request in requests:
        driver.cancel(request)
    driver.turn()
    assert {driver.last(request).finish for request in requests} == {Finish.ABORT}
    assert driver.core.snapshot().kv_reserved_tokens == 0


def test_a_request_larger_than_the_replica_is_refused_at_once_and_holds_up_nobody(
    bench: Any,
) -> None:
    driver = bench(kv_tokens=192)
    large = driver.submit(prompt=tuple([1] * 380), output=1)
    small = driver.submit(output=2)
    driver.turn()
    assert driver.last(large).refusal == Refusal.TOO_LARGE
    driver.run_to_the_end()
    assert driver.last(small).finish == Finish.LENGTH


def test_a_cancel_during_the_last_step_is_an_abort_and_counts_its_token(bench: Any) -> None:
    driver = bench()
    request = driver.submit(output=1)
    driver.runner.during_step = lambda batch: driver.cancel(request)
    driver.turn()
    assert driver.last(request).finish == Finish.ABORT
    assert not driver.tokens(request)
    assert driver.core.snapshot().workloads["chat"].cancelled_tokens == 1


def test_without_memory_for_a_step_its_requests_fail_and_later_steps_are_smaller(
    bench: Any, settings: Any
) -> None:
    driver = bench(settings(prefill=64))
    driver.runner.during_step = refuse_more_than(20)
    hit = driver.submit(prompt=40, output=2)
    driver.turn()
    assert driver.last(hit).finish == Finish.ERROR
    assert "StepTooLarge" in driver.last(hit).error
    state = driver.core.snapshot()
    assert (state.out_of_memory, state.kv_used_tokens) == (1, 0)
    assert state.step_prompt_tokens == 2048


def refuse_more_than(tokens: int) -> Any:
    def look(batch: Sequence[Row]) -> None:
        if sum(len(row.token_ids) for row in batch) > tokens:
            raise StepTooLarge("no memory")

    return look


def test_steps_shrink_until_they_fit_and_then_long_prompts_work_again(
    bench: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.server.engine.paged_runner.PagedRunner.max_step_tokens", 64)
    driver = bench(settings(prefill=64))
    driver.runner.during_step = refuse_more_than(20)
    for _ in range(2):
        failed = driver.submit(prompt=45, output=2)
        driver.run_to_the_end()
        assert driver.last(failed).finish == Finish.ERROR
    served = driver.submit(prompt=45, output=2)
    driver.run_to_the_end()
    assert driver.last(served).finish == Finish.LENGTH
    assert driver.core.snapshot().step_prompt_tokens == 16


def test_a_prompt_seen_before_is_told_as_cached_and_counted(bench: Any) -> None:
    driver = bench()
    first = driver.submit(prompt=18, output=2)
    driver.run_to_the_end()
    second = driver.submit(prompt=18, output=2)
    driver.run_to_the_end()
    assert driver.outputs[first][0].cached_tokens == 0
    assert [output.cached_tokens for output in driver.outputs[second]] == [16, None]
    assert driver.tokens(first) == driver.tokens(second)
    state = driver.core.snapshot()
    assert (state.prefix_queried_tokens, state.prefix_hit_tokens) == (32, 16)


def test_logprobs_come_with_their_tokens_for_those_that_asked(bench: Any) -> None:
    driver = bench()
    asked = driver.submit(output=2, sampling=Sampling(logprobs=0))
    other = driver.submit(output=2)
    driver.run_to_the_end()
    told = [output.logprobs for output in driver.outputs[asked]]
    assert [entry.token_id for (entry,) in told] == driver.tokens(asked)
    assert not any(output.logprobs for output in driver.outputs[other])


def test_the_dump_says_what_holds_up_whom(bench: Any, settings: Any) -> None:
    driver = bench(settings(max_running=1))
    running = driver.submit(prompt=5, output=9)
    driver.submit(prompt=6, output=9)
    driver.turns(2)
    driver.clock.advance(30)
    text = driver.core.dump()
    assert "workload chat: 1 running, 1 waiting, the oldest since 30" in text
    assert f"{running}: 6 tokens computed" in text
    assert "blocked: {'chat': <Blocked.LIMIT" in text
    assert "100 in all" in text
