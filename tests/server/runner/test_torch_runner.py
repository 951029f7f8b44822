# SPDX-License-Identifier: Apache-2.0
"""Paged, ragged, chunked: the logits are those of transformers' own forward pass."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

LENGTHS = (37, 5, 18, 64, 1, 16, 33)


def reference_logits(folder: Path, tokens: list[int]) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([tokens])).logits[0]
    return logits


def scripts(script: Any, vocabulary: int, generator: random.Random) -> list[Any]:
    """Sequences whose blocks lie scattered in the cache."""
    blocks = list(range(64))
    generator.shuffle(blocks)
    result = []
    for length in LENGTHS:
        tokens = [generator.randrange(vocabulary) for _ in range(length)]
        table = tuple(blocks.pop() for _ in range(-(-length // 16)))
        result.append(script(tokens, table))
    return result


def largest_gap(runner: Any, folder: Path, rows: list[Any], generator: random.Random) -> float:
    """Plays the scripts together, in random cuts of prompt chunks and single tokens, and compares
    the logits after each row with the reference."""
    references = [reference_logits(folder, row.tokens) for row in rows]
    gap = 0.0
    while open_rows := [i for i, row in enumerate(rows) if row.done < len(row.tokens)]:
        chosen = generator.sample(open_rows, k=generator.randint(1, len(open_rows)))
        batch = []
        for index in chosen:
            left = len(rows[index].tokens) - rows[index].done
            batch.append(rows[index].row(min(left, generator.choice((1, 1, 2, 7, 20)))))
        logits = runner.logits(batch)
        for line, index in zip(logits, chosen, strict=True):
            gap = max(gap, (line - references[index][rows[index].done - 1]).abs().max().item())
    return gap


@pytest.mark.parametrize(
    ("model_type", "values"),
    [
        ("llama", {}),
        ("llama", {"num_key_value_heads": 4, "tie_word_embeddings": True}),
        ("mistral", {"sliding_window": 9}),
        ("qwen3", {"head_dim": 16}),
        ("phi3", {}),
    ],
)
def test_ragged_steps_give_the_logits_of_a_whole_forward_pass(
    model_type: str, values: dict[str, Any], make_model: Any, load: Any, script: Any
) -> None:
    folder = make_model(model_type, **values)
    generator = random.Random(5)
    rows = scripts(script, 97, generator)
    assert largest_gap(load(folder, native=False), folder, rows, generator) < 1e-4


def test_the_reference_itself_tells_sequences_apart(tiny: Path) -> None:
    """Else the comparison above would prove nothing."""
    first, second = (reference_logits(tiny, [3, token, 7]) for token in (4, 5))
    assert (first[-1] - second[-1]).abs().max() > 0.1


def test_rows_that_do_not_sample_give_none(tiny: Path, load: Any, script: Any) -> None:
    runner = load(tiny, native=False)
    silent = script([1, 2, 3], (0,)).row(2)
    speaking = script([1, 2, 3], (1,)).row(3)
    object.__setattr__(silent, "samples", False)
    tokens = runner.launch([silent, speaking]).result().tokens
    assert tokens[0] is None
    assert tokens[1] == reference_logits(tiny, [1, 2, 3])[-1].argmax()
    assert runner.launch([silent]).result().tokens == [None]


def test_an_overflow_in_one_sequence_does_not_reach_the_next_owner_of_its_block(
    tiny: Path, load: Any, script: Any
) -> None:
    runner = load(tiny, native=False)
    layer = runner._model.model.layers[1].self_attn.k_proj
    healthy = layer.weight.data.clone()
    layer.weight.data.fill_(float("inf"))
    runner.launch([script(list(range(16)), (0,)).row(16)])
    layer.weight.data.copy_(healthy)
    logits = runner.logits([script([1, 2, 3], (0,)).row(3)])
    torch.testing.assert_close(logits[0], reference_logits(tiny, [1, 2, 3])[-1])


def test_bfloat16_stays_close_to_float32(tiny: Path, load: Any, script: Any) -> None:
    tokens = list(range(40))
    logits = (
        load(tiny, dtype="bfloat16", native=False)
        .logits([script(tokens, (0, 1, 2)).row(40)])[0]
        .float()
    )
    expected = reference_logits(tiny, tokens)[-1]
    assert (logits - expected).abs().max() < 0.05 * expected.abs().max()
