# SPDX-License-Identifier: Apache-2.0
"""SmolLM2 in rounded weights and KV: the tokens that it emits are those of float32, as good as."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from headway_server.engine.messages import Sampling
from headway_server.runner.protocol import Row

ASKED = ("Tell me about", "Write two sentences about", "Explain to a child", "List facts about")
TOPICS = ("the sea", "a red bicycle", "how bread is made", "the rules of chess")
NEW_TOKENS = 16
BLOCKS = 8


@dataclass(frozen=True)
class Truth:
    """The prompts, and what float32 says after each and after every token of its own answers:
    logits [NEW_TOKENS, prompts, vocabulary]."""

    prompts: list[list[int]]
    logits: torch.Tensor


@pytest.fixture(scope="module")
def truth(smollm2: Path, load: Any) -> Truth:
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    chats = [[{"role": "user", "content": f"{ask} {topic}."}] for ask in ASKED for topic in TOPICS]
    prompts = [
        tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        for chat in chats
    ]
    runner = load(smollm2, kv_capacity_tokens=2048)
    heard = [first_logits(runner, prompts, 64)]
    for made in range(NEW_TOKENS - 1):
        heard.append(next_logits(runner, prompts, heard[-1].argmax(dim=-1), made))
    return Truth(prompts, torch.stack(heard))


def row(index: int, tokens: list[int], start: int) -> Row:
    blocks = range(index * BLOCKS, (index + 1) * BLOCKS)
    return Row(str(index), tuple(tokens), start, blocks, True, Sampling())


def first_logits(runner: Any, prompts: list[list[int]], chunk: int) -> torch.Tensor:
    """[prompts, vocabulary], after prompts that are computed together, chunk by chunk."""
    last: dict[int, torch.Tensor] = {}
    for start in range(0, max(map(len, prompts)), chunk):
        open_prompts = [i for i, prompt in enumerate(prompts) if start < len(prompt)]
        rows = [row(i, prompts[i][start : start + chunk], start) for i in open_prompts]
        last |= dict(zip(open_prompts, runner.logits(rows), strict=True))
    return torch.stack([last[index] for index in range(len(prompts))])


def next_logits(
    runner: Any, prompts: list[list[int]], tokens: torch.Tensor, made: int
) -> torch.Tensor:
    rows = [row(i, [int(token)], len(prompts[i]) + made) for i, token in enumerate(tokens)]
    logits: torch.Tensor = runner.logits(rows)
    return logits


@pytest.mark.parametrize(
    ("values", "chunk", "share"),
    [
        ({}, 7, 0.99),
        ({"quantization": "Int8"}, 64, 0.97),
        ({"quantization": "Int8", "kv_cache_dtype": "Int8"}, 16, 0.97),
    ],
)
def test_the_best_tokens_are_those_of_float32(
    values: dict[str, str], chunk: int, share: float, smollm2: Path, load: Any, truth: Truth
) -> None:
    rounded = load(smollm2, dtype="auto", kv_capacity_tokens=2048, **values)
    best = truth.logits.argmax(dim=-1)
    heard = [first_logits(rounded, truth.prompts, chunk)]
    heard += [
        next_logits(rounded, truth.prompts, tokens, made) for made, tokens in enumerate(best[:-1])
    ]
    tokens = torch.stack(heard).argmax(dim=-1)
    gaps = truth.logits.max(dim=-1).values - truth.logits.gather(2, tokens[..., None])[..., 0]
    assert (tokens == best).float().mean() >= share
    assert gaps.max() <= 0.25
