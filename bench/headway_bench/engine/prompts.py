# SPDX-License-Identifier: Apache-2.0
"""Prompts of an exact length: text where the model has a tokenizer, else random token ids.

Text matters for the check of the answers: on noise a model's two best tokens are often equal.
"""

import random
from pathlib import Path

from headway_bench.engine.requests import WritePrompt

TOPICS = (
    "a railway through the mountains", "how bread is baked", "the tides of a wide river",
    "an old bridge of stone", "the first snow of winter", "maps that were drawn by hand",
    "a garden behind the school", "clocks without a pendulum", "ships that carry grain",
)  # fmt: skip
SENTENCES = (
    "Tell me more about {}, and say why it matters.",
    "Yesterday we spoke of {}; most of us knew little of it.",
    "In chapter {} of the report there is a table on {}.",
    "Whoever has seen {} does not forget it soon.",
    "List {} reasons to care for {}.",
)


def prompt_writer(folder: Path, vocab_size: int, seed: int) -> WritePrompt:
    chance = random.Random(seed)  # noqa: S311 - not a secret
    file = folder / "tokenizer.json"
    if not file.is_file():
        return lambda length: tuple(chance.randrange(vocab_size) for _ in range(length))
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))

    def write(length: int) -> tuple[int, ...]:
        ids = list(
            tokenizer.encode(f"{chance.randrange(10**9):09} is the number of this request.").ids
        )
        while len(ids) < length:
            ids += tokenizer.encode(" " + sentence(chance), add_special_tokens=False).ids
        return tuple(ids[:length])

    return write


def sentence(chance: random.Random) -> str:
    pattern = chance.choice(SENTENCES)
    parts = [str(chance.randrange(2, 99)), chance.choice(TOPICS)]
    return pattern.format(*parts[-pattern.count("{}") :])
