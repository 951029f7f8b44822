# SPDX-License-Identifier: Apache-2.0
"""The first token of a prompt whose first nine tenths were served before, against a new prompt."""

from headway_bench.engine.figures import TTFT_PREFIX, Measured
from headway_bench.engine.repetitions import Say, Series, ratio_details, rounded
from headway_bench.engine.requests import BenchRequest, WritePrompt
from headway_bench.engine.sizes import Sizes
from headway_bench.engine.under_test import EngineUnderTest
from headway_server.runner.protocol import Runner

SHARED_PERCENT = 90


def measure_prefix_latency(
    runner: Runner, sizes: Sizes, write: WritePrompt, repeats: int, say: Say
) -> Measured:
    """Cold and warm in turn on one engine: each pair has a prompt of its own."""
    cold, warm, cached = [], [], []
    with EngineUnderTest(runner) as engine:
        for _ in range(repeats * sizes.prefix_pairs):
            prompt = write(sizes.prefix_prompt)
            shared = len(prompt) * SHARED_PERCENT // 100
            first = engine.serve([BenchRequest(prompt, 1)])[0]
            tail = write(len(prompt) - shared)
            second = engine.serve([BenchRequest(prompt[:shared] + tail, 1)])[0]
            cold.append(first.ttft)
            warm.append(second.ttft)
            cached.append(second.cached_tokens)
            say(
                f"TTFT of {len(prompt)} tokens: {first.ttft:.3f} s cold, {second.ttft:.3f} s with "
                f"{shared} of them served before ({second.cached_tokens} came from the cache)"
            )
    ours, theirs = Series(tuple(warm), False), Series(tuple(cold), False)
    details = ratio_details(
        ours,
        theirs,
        promptTokens=sizes.prefix_prompt,
        sharedPercent=SHARED_PERCENT,
        cachedTokens=cached,
        unit="s",
    )
    return Measured(TTFT_PREFIX, rounded(ours.over(theirs).median), details)
