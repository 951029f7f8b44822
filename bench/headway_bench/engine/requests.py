# SPDX-License-Identifier: Apache-2.0
"""The requests of the bench: token ids and how many tokens to answer with. Pure, seeded.

All contenders get the same ones, decode greedily and ignore end tokens, so that every one of them
makes the same number of tokens.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from headway_bench.engine.sizes import Span

# So many tokens of a text to go on with; no two prompts of a run share their first tokens.
WritePrompt = Callable[[int], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class BenchRequest:
    prompt: tuple[int, ...]
    output_tokens: int

    @property
    def tokens(self) -> int:
        return len(self.prompt) + self.output_tokens


def mixed_requests(
    count: int, prompts: Span, outputs: Span, write: WritePrompt, seed: int
) -> list[BenchRequest]:
    """Lengths log-uniform over the spans: `count` equally probable ones, in random order, so that
    a run of few requests has the same mean as one of many."""
    chance = random.Random(f"{seed}/{count}")  # noqa: S311 - not a secret
    prompt_lengths = log_uniform(prompts, count)
    output_lengths = log_uniform(outputs, count)
    chance.shuffle(prompt_lengths)
    chance.shuffle(output_lengths)
    return [
        BenchRequest(write(prompt), output)
        for prompt, output in zip(prompt_lengths, output_lengths, strict=True)
    ]


def log_uniform(span: Span, count: int) -> list[int]:
    """The middles of `count` equal parts of the log-uniform distribution, in rising order."""
    low, high = span
    return [round(low * (high / low) ** ((index + 0.5) / count)) for index in range(count)]
