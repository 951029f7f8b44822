# SPDX-License-Identifier: Apache-2.0
"""Short prompts do not wait for long ones, and long ones get on in every step."""

from typing import Any

from headway_server.scheduler import Chunk


def test_a_short_prompt_is_computed_at_once_beside_a_long_one(bench: Any, policy: Any) -> None:
    driver = bench(policy(max_batch_prefill_tokens=40, max_batch_total_tokens=10_000))
    long = driver.add(prompt=800, output=2)
    driver.step()
    short = driver.add(prompt=10, output=2)
    plan = driver.step()
    assert set(plan.chunks) == {
        Chunk(short, 0, 10, last=True),
        Chunk(long, 40, 30, last=False),
    }
    assert driver.step().decode == (short,)


def test_a_flood_of_short_prompts_leaves_the_oldest_long_one_a_quarter_of_each_step(
    bench: Any, policy: Any
) -> None:
    driver = bench(policy(max_batch_prefill_tokens=40, max_batch_total_tokens=10_000))
    long = driver.add(prompt=600, output=2)
    driver.step()
    for step in range(16):
        for _ in range(4):
            driver.add(prompt=10, output=1)
        computed = {chunk.request_id: chunk.tokens for chunk in driver.step().chunks}
        assert computed[long] == 10, f"in step {step}"
        assert sum(computed.values()) == 40


def test_a_short_prompt_does_not_wait_behind_long_ones_in_its_own_queue(
    bench: Any, policy: Any
) -> None:
    driver = bench(policy(max_batch_prefill_tokens=40, max_batch_total_tokens=10_000))
    for _ in range(3):
        driver.add(prompt=800, output=2)
    short = driver.add(prompt=10, output=2)
    assert short in [r for plan in driver.run(2) for r in plan.sampling]


def test_the_share_of_the_oldest_holds_where_the_models_step_is_the_bound(
    bench: Any, policy: Any
) -> None:
    driver = bench(policy(max_batch_total_tokens=10_000), step_tokens=20)
    long = driver.add(prompt=100, output=2)
    driver.step()
    for _ in range(5):
        driver.add(prompt=5, output=1)
    computed = {chunk.request_id: chunk.tokens for chunk in driver.step().chunks}
    assert computed[long] == 5
    assert sum(computed.values()) == 20


def test_after_a_step_was_too_large_steps_compute_half_the_prompt_tokens_but_a_blocks_worth(
    bench: Any, policy: Any
) -> None:
    driver = bench(policy(max_batch_total_tokens=10_000), step_tokens=60)
    driver.add(prompt=500, output=2)
    sizes = []
    for _ in range(5):
        sizes.append(driver.step().prompt_tokens)
        driver.scheduler.halve_prompt_room()
    assert sizes == [60, 30, 15, 10, 10]
