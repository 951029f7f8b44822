# SPDX-License-Identifier: Apache-2.0
"""SmolLM2 in rounded weights and KV: the tokens that it emits are those of float32, as good as."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from headway_server.engine.messages import Sampling
from headway_server.runner.protocol import Row

ASKED = (
    "Tell me about the sea.",
    "Write two sentences about a red bicycle.",
    "Explain to a child how bread is made.",
    "List five facts about chess.",
)
COPIES = 3
NEW_TOKENS = 13
BLOCKS = 8


@pytest.fixture(scope="module")
def prompts(smollm2: Path) -> list[list[int]]:
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    chats = [
        [{"role": "user", "content": f"{asked} {n}"}] for asked in ASKED for n in range(COPIES)
    ]
    return [
        tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        for chat in chats
    ]


@pytest.fixture(scope="module")
def exact(smollm2: Path, load: Any) -> Any:
    return load(smollm2, kv_capacity_tokens=2048)


def row(index: int, tokens: list[int], start: int) -> Row:
    blocks = range(index * BLOCKS, (index + 1) * BLOCKS)
    return Row(str(index), tuple(tokens), start, blocks, True, Sampling())


def first_logits(runner: Any, prompts: list[list[int]], chunk: int) -> torch.Tensor:
    """[prompts, vocabulary], after prompts that are computed together, chunk by chunk."""
    last: dict[int, torch.Tensor] = {}
    for start in range(0, max(map(len, prompts)), chunk):
        open_prompts = [i for i, prompt in enumerate(prompts) if start < len(prompt)]
        logits = runner.logits(
            [row(i, prompts[i][start : start + chunk], start) for i in open_prompts]
        )
        last |= dict(zip(open_prompts, logits, strict=True))
    return torch.stack([last[index] for index in range(len(prompts))])


def next_logits(
    runner: Any, prompts: list[list[int]], tokens: list[int], made: int
) -> torch.Tensor:
    rows = [row(i, [token], len(prompts[i]) + made) for i, token in enumerate(tokens)]
    logits: torch.Tensor = runner.logits(rows)
    return logits


@pytest.mark.parametrize(
    ("values", "chunk"),
    [
        ({"dtype": "auto"}, 7),
        ({"dtype": "auto", "quantization": "Int8"}, 64),
        ({"dtype": "auto", "quantization": "Int8", "kv_cache_dtype": "Int8"}, 16),
    ],
)
def test_emitted_tokens_are_those_of_float32(
    values: dict[str, str],
    chunk: int,
    smollm2: Path,
    load: Any,
    exact: Any,
    prompts: list[list[int]],
) -> None:
    rounded = load(smollm2, kv_capacity_tokens=2048, **values)
    emitted = first_logits(rounded, prompts, chunk).argmax(dim=-1)
    logits = first_logits(exact, prompts, 64)
    equal, gap = 0, 0.0
    for made in range(NEW_TOKENS):
        equal += int((logits.argmax(dim=-1) == emitted).sum())
        chosen = logits.gather(1, emitted[:, None])[:, 0]
        gap = max(gap, float((logits.max(dim=-1).values - chosen).max()))
        tokens = emitted.tolist()
        logits = next_logits(exact, prompts, tokens, made)
        emitted = next_logits(rounded, prompts, tokens, made).argmax(dim=-1)
    assert equal >= 0.99 * NEW_TOKENS * len(prompts)
    assert gap <= 0.25
