# SPDX-License-Identifier: Apache-2.0
"""What long prompts of a low priority do to the first token of short chats of a high one.

Chats come one after another, after a pause of random length, so that they meet the engine at any
point of a step. The long prompts never end while chats are measured, and are dropped afterwards.
"""

import random
import time

from headway_bench.engine.figures import TTFT_MIXED, Measured
from headway_bench.engine.repetitions import Say, Series, percentile_95, rounded
from headway_bench.engine.requests import BenchRequest, WritePrompt
from headway_bench.engine.sizes import Sizes
from headway_bench.engine.under_test import Answer, EngineUnderTest, policy
from headway_server.runner.protocol import Runner

CHAT, BATCH = "chat", "batch"
CHAT_PRIORITY, BATCH_PRIORITY = 100, -100


def measure_mixed_latency(
    runner: Runner,
    sizes: Sizes,
    batch_prefill_tokens: int,
    write: WritePrompt,
    seed: int,
    repeats: int,
    say: Say,
) -> Measured:
    """p95 over all repetitions of TTFT beside long prompts over p95 alone."""
    alone: list[list[float]] = []
    beside: list[list[float]] = []
    for repetition in range(1, repeats + 1):
        alone.append(chats(runner, sizes, batch_prefill_tokens, write, seed, with_long=False))
        beside.append(chats(runner, sizes, batch_prefill_tokens, write, seed, with_long=True))
        say(
            f"TTFT p95 of chats: {percentile_95(alone[-1]):.3f} s alone, "
            f"{percentile_95(beside[-1]):.3f} s beside prompts of {sizes.long_prompt} tokens "
            f"(repetition {repetition} of {repeats})"
        )
    p95 = {"alone": pooled(alone), "beside": pooled(beside)}
    ratios = Series(
        tuple(percentile_95(b) / percentile_95(a) for a, b in zip(alone, beside, strict=True)),
        higher_is_better=False,
    )
    details = {
        "chatPromptTokens": sizes.chat_prompt,
        "longPromptTokens": sizes.long_prompt,
        "batchPrefillTokens": batch_prefill_tokens,
        "priorities": {CHAT: CHAT_PRIORITY, BATCH: BATCH_PRIORITY},
        "p95Seconds": {side: rounded(value) for side, value in p95.items()},
        "ratio": ratios.as_json(),
        "ttftSeconds": {
            side: [[rounded(value) for value in values] for values in runs]
            for side, runs in (("alone", alone), ("beside", beside))
        },
    }
    return Measured(TTFT_MIXED, rounded(p95["beside"] / p95["alone"]), details)


def chats(
    runner: Runner,
    sizes: Sizes,
    batch_prefill_tokens: int,
    write: WritePrompt,
    seed: int,
    with_long: bool,
) -> list[float]:
    """TTFT of each chat, in seconds."""
    chance = random.Random(seed)  # noqa: S311 - not a secret
    policies = (
        policy(runner, CHAT, CHAT_PRIORITY),
        policy(runner, BATCH, BATCH_PRIORITY, batch_prefill_tokens),
    )
    seconds: list[float] = []
    with EngineUnderTest(runner, policies) as engine:
        chat(engine, sizes, write)
        long = start_long(engine, sizes, write) if with_long else []
        for _ in range(sizes.chats):
            ended = [answer for answer in long if answer.finish]
            engine.wait(ended)
            if ended and len(ended) == len(long):
                long = start_long(engine, sizes, write)
            pause = chance.uniform(0, 2) * (seconds[0] if seconds else 0.01)
            time.sleep(pause)
            seconds.append(chat(engine, sizes, write).ttft)
    return seconds


def start_long(engine: EngineUnderTest, sizes: Sizes, write: WritePrompt) -> list[Answer]:
    request = BenchRequest(write(sizes.long_prompt), 1)
    return [engine.submit(request, BATCH) for _ in range(sizes.long_requests)]


def chat(engine: EngineUnderTest, sizes: Sizes, write: WritePrompt) -> Answer:
    answer = engine.submit(BenchRequest(write(sizes.chat_prompt), sizes.chat_output), CHAT)
    engine.wait([answer])
    return answer


def pooled(runs: list[list[float]]) -> float:
    return percentile_95([value for run in runs for value in run])
