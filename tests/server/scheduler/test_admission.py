# SPDX-License-Identifier: Apache-2.0
"""Who is let in, who is held back and why, and who is refused at once."""

from typing import Any

import pytest

from headway_server.scheduler import Blocked, Chunk, Refusal, Refused, Request, Settings


def test_a_request_prefills_then_decodes_then_leaves(bench: Any) -> None:
    driver = bench()
    request = driver.add(prompt=5, output=3)
    first, second, third, after = driver.run(4)
    assert first.admitted == (request,)
    assert first.chunks == (Chunk(request, 0, 5, last=True),)
    assert (second.decode, third.decode) == ((request,), (request,))
    assert not after
    assert driver.scheduler.is_empty


def test_a_finished_request_makes_room_for_the_next_one_in_the_following_step(
    bench: Any, policy: Any
) -> None:
    driver = bench(policy(max_batch_total_tokens=20))
    long = driver.add(prompt=5, output=7)
    short = driver.add(prompt=5, output=3)
    waiting = driver.add(prompt=4, output=4)
    plans = driver.run(4)
    assert set(plans[0].admitted) == {long, short}
    assert [plan.admitted for plan in plans[1:]] == [(), (), (waiting,)]
    assert plans[3].decode == (long,)


def test_an_answer_that_stops_early_gives_its_whole_reservation_back(bench: Any) -> None:
    driver = bench()
    request = driver.add(prompt=5, output=100)
    driver.step()
    assert driver.scheduler.free_blocks == 1000 - 11
    driver.step(stopped=(request,))
    assert driver.scheduler.is_empty
    assert driver.scheduler.free_blocks == 1000


def test_prompts_are_cut_into_chunks_and_share_the_step_with_decodes(
    bench: Any, policy: Any
) -> None:
    driver = bench(policy(max_batch_prefill_tokens=8))
    first = driver.add(prompt=4, output=9)
    driver.step()
    second = driver.add(prompt=20, output=2)
    plans = driver.run(3)
    assert [plan.decode for plan in plans] == [(first,)] * 3
    assert [plan.chunks for plan in plans] == [
        (Chunk(second, 0, 8, last=False),),
        (Chunk(second, 8, 8, last=False),),
        (Chunk(second, 16, 4, last=True),),
    ]


def test_a_step_never_computes_more_tokens_than_the_model_can_take(bench: Any, policy: Any) -> None:
    driver = bench(policy(max_batch_prefill_tokens=100), policy("batch"), step_tokens=10)
    for _ in range(4):
        driver.add(prompt=7, output=3)
        driver.add(prompt=7, output=3, workload="batch")
    while not driver.scheduler.is_empty:
        plan = driver.step()
        assert 0 < len(plan.decode) + plan.prompt_tokens <= 10


@pytest.mark.parametrize(
    ("limits", "capacity", "reason"),
    [
        ({"max_batch_total_tokens": 19}, {}, Blocked.BUDGET),
        ({}, {"kv_blocks": 1}, Blocked.KV),
        ({"waiting_served_ratio_percent": 200}, {}, Blocked.GATE),
        ({"max_running": 1}, {}, Blocked.LIMIT),
        ({"max_running_per_tenant": 1}, {}, Blocked.LIMIT),
        ({}, {"step_tokens": 1}, Blocked.PREFILL_BUDGET),
    ],
)
def test_the_reason_for_holding_back_is_counted(
    limits: dict[str, int], capacity: dict[str, int], reason: Blocked, bench: Any, policy: Any
) -> None:
    driver = bench(policy(**limits), **capacity)
    driver.add(prompt=1, output=9)
    driver.step()
    driver.add(prompt=1, output=9)
    plans = driver.run(2)
    assert [plan.blocked for plan in plans] == [{"chat": reason}] * 2
    assert driver.scheduler.workloads["chat"].blocked == {reason: 2}
    driver.run(20)
    assert driver.scheduler.is_empty


def test_nobody_overtakes_a_head_that_does_not_fit(bench: Any, policy: Any) -> None:
    driver = bench(policy(max_batch_total_tokens=20))
    driver.add(prompt=5, output=5)
    big, small = driver.add(prompt=10, output=5), driver.add(prompt=1, output=1)
    driver.step()
    assert not driver.running() & {big, small}


def test_a_tenant_at_its_limit_does_not_hold_back_another(bench: Any, policy: Any) -> None:
    driver = bench(policy(max_running_per_tenant=1))
    driver.add(prompt=1, output=9, tenant="a")
    driver.add(prompt=1, output=9, tenant="a")
    other = driver.add(prompt=1, output=9, tenant="b")
    driver.step()
    assert other in driver.running()
    assert len(driver.running()) == 2


@pytest.mark.parametrize(
    ("request_values", "reason", "words"),
    [
        ({"prompt": 15, "output": 6}, Refusal.TOO_LARGE, "needs 21 tokens.*has 20"),
        ({"prompt": 0, "output": 6}, Refusal.INVALID, "one prompt and one output token"),
        ({"prompt": 1, "output": 0}, Refusal.INVALID, "one prompt and one output token"),
        ({"prompt": 1, "output": 1, "workload": "x"}, Refusal.UNKNOWN_WORKLOAD, "known: chat"),
    ],
)
def test_what_can_never_run_is_refused_before_it_is_queued(
    request_values: dict[str, Any], reason: Refusal, words: str, bench: Any, policy: Any
) -> None:
    driver = bench(policy(max_batch_total_tokens=20))
    with pytest.raises(Refused, match=words) as refused:
        driver.add(**request_values)
    assert refused.value.reason == reason
    assert driver.scheduler.is_empty


def test_a_request_larger_than_the_kv_cache_is_refused_although_its_budget_would_do(
    bench: Any,
) -> None:
    with pytest.raises(Refused, match="has 30"):
        bench(kv_blocks=3).add(prompt=30, output=1)


def test_a_full_queue_refuses_and_the_running_do_not_count(bench: Any, policy: Any) -> None:
    driver = bench(policy(max_queue_length=1, max_running=1))
    driver.add(prompt=1, output=9)
    driver.step()
    driver.add(prompt=1, output=9)
    with pytest.raises(Refused, match="limit is 1") as refused:
        driver.add(prompt=1, output=9)
    assert refused.value.reason == Refusal.QUEUE_FULL


def test_only_the_waiting_time_out_but_a_deadline_ends_the_running_too(
    bench: Any, policy: Any
) -> None:
    driver = bench(policy(max_running=1, queue_timeout_seconds=5.0))
    running = driver.add(prompt=1, output=99, deadline=7.0)
    waiting = driver.add(prompt=1, output=99)
    driver.run(4)
    assert driver.scheduler.remove_timed_out(4.9) == []
    assert [r.request_id for r in driver.scheduler.remove_timed_out(5.0)] == [waiting]
    assert driver.scheduler.remove_past_deadline(6.9) == []
    assert [r.request_id for r in driver.scheduler.remove_past_deadline(7.0)] == [running]
    assert driver.scheduler.free_blocks == 1000


def test_a_deadline_does_not_hit_a_later_request_of_the_same_id(bench: Any) -> None:
    scheduler = bench().scheduler
    scheduler.add(Request("same", "chat", "t", 1, 9, arrival=0.0, deadline=5.0))
    scheduler.remove("same")
    scheduler.add(Request("same", "chat", "t", 1, 9, arrival=1.0, deadline=8.0))
    assert scheduler.remove_past_deadline(7.0) == []
    assert len(scheduler.remove_past_deadline(8.0)) == 1


@pytest.mark.parametrize("steps_before", [0, 1, 2, 4])
def test_removing_frees_the_place_for_the_next_step(
    steps_before: int, bench: Any, policy: Any
) -> None:
    driver = bench(policy(max_running=1, max_batch_prefill_tokens=2))
    first, second = driver.add(prompt=5, output=5), driver.add(prompt=5, output=5)
    driver.run(steps_before)
    assert driver.scheduler.remove(first)
    assert driver.scheduler.remove(first) is None
    assert driver.step().admitted == (second,)


def test_a_request_removed_while_its_step_runs_is_not_booked(bench: Any) -> None:
    driver = bench()
    first, second = driver.add(prompt=5, output=5), driver.add(prompt=5, output=1)
    plan = driver.scheduler.plan(0.0)
    driver.scheduler.remove(first)
    driver.scheduler.launched(plan)
    assert driver.scheduler.settle(plan) == [second]
    assert driver.scheduler.is_empty


def test_lower_knobs_let_the_running_finish_and_only_stop_admission(
    bench: Any, policy: Any
) -> None:
    driver = bench(policy(max_batch_total_tokens=100))
    running = {driver.add(prompt=10, output=10) for _ in range(5)}
    driver.step()
    waiting = driver.add(prompt=10, output=5)
    assert not driver.scheduler.apply(Settings((policy(max_batch_total_tokens=20),), "r2"))
    assert driver.scheduler.revision == "r2"
    plans = driver.run(9)
    assert all(set(plan.decode) == running for plan in plans)
    assert all(plan.blocked == {"chat": Blocked.BUDGET} for plan in plans)
    assert driver.step().admitted == (waiting,)


def test_a_waiting_request_that_a_lower_budget_can_never_hold_is_handed_back(
    bench: Any, policy: Any
) -> None:
    driver = bench(policy(max_running=1))
    driver.add(prompt=10, output=10)
    big, small = driver.add(prompt=10, output=11), driver.add(prompt=10, output=10)
    driver.step()
    lower = Settings((policy(max_batch_total_tokens=20),))
    assert [request.request_id for request in driver.scheduler.apply(lower)] == [big]
    driver.run(9)
    assert driver.step().admitted == (small,)


def test_a_removed_workload_serves_what_it_accepted_and_takes_no_more(
    bench: Any, policy: Any
) -> None:
    driver = bench(policy(), policy("old", max_running=1))
    driver.add(prompt=1, output=2, workload="old")
    second = driver.add(prompt=1, output=2, workload="old")
    driver.step()
    driver.scheduler.apply(Settings((policy(),)))
    with pytest.raises(Refused, match="known: chat"):
        driver.add(prompt=1, output=2, workload="old")
    driver.step()
    assert driver.running("old") == set()
    assert driver.step().admitted == (second,)
    driver.step()
    assert list(driver.scheduler.workloads) == ["chat"]
