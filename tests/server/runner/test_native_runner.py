# SPDX-License-Identifier: Apache-2.0
"""The native path gives the logits of the unfused model, and the same bits in any company."""

import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from headway_server.load_error import ModelLoadError
from headway_server.native.library import NativeUnavailable
from headway_server.runner.native_runner import NativeRunner
from headway_server.runner.protocol import StepTooLarge
from headway_server.runner.torch_runner import TorchRunner

PARTIAL = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "tied": ("llama", {"num_key_value_heads": 4, "tie_word_embeddings": True}),
    "biased": ("llama", {"attention_bias": True, "mlp_bias": True, "intermediate_size": 45}),
    "scaled": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            }
        },
    ),
    "mistral": ("mistral", {"sliding_window": 9}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"head_dim": 16}),
    "smollm3": ("smollm3", {"no_rope_layer_interval": 2}),
    "gemma": ("gemma", {"head_dim": 24, "num_key_value_heads": 1}),
    "phi3": ("phi3", {}),
    "partial": ("phi3", {"rope_parameters": PARTIAL}),
}


@pytest.fixture(scope="module", params=list(FAMILIES))
def family(request: pytest.FixtureRequest, make_model: Any) -> Path:
    model_type, values = FAMILIES[request.param]
    folder: Path = make_model(model_type, **values)
    return folder


def reference_logits(folder: Path, tokens: list[int]) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([tokens])).logits[0]
    return logits


def random_scripts(script: Any, lengths: tuple[int, ...], generator: random.Random) -> list[Any]:
    blocks = list(range(64))
    generator.shuffle(blocks)
    return [
        script(
            [generator.randrange(97) for _ in range(length)],
            tuple(blocks.pop() for _ in range(-(-length // 16))),
        )
        for length in lengths
    ]


def play(
    runner: Any, rows: list[Any], generator: random.Random, cuts: tuple[int, ...]
) -> list[dict[int, torch.Tensor]]:
    """By row: the logits after each of its tokens that ended a part."""
    heard: list[dict[int, torch.Tensor]] = [{} for _ in rows]
    while open_rows := [i for i, row in enumerate(rows) if row.done < len(row.tokens)]:
        chosen = generator.sample(open_rows, k=generator.randint(1, len(open_rows)))
        batch = [
            rows[i].row(min(len(rows[i].tokens) - rows[i].done, generator.choice(cuts)))
            for i in chosen
        ]
        for line, index in zip(runner.logits(batch), chosen, strict=True):
            heard[index][rows[index].done] = line.clone()
    return heard


def test_ragged_steps_give_the_logits_of_the_unfused_model(
    family: Path, load: Any, script: Any
) -> None:
    runner = load(family)
    assert isinstance(runner, NativeRunner)
    generator = random.Random(5)
    rows = random_scripts(script, (37, 5, 18, 90, 1, 16, 33), generator)
    references = [reference_logits(family, row.tokens) for row in rows]
    for heard, reference in zip(
        play(runner, rows, generator, (1, 1, 2, 7, 20)), references, strict=True
    ):
        for position, logits in heard.items():
            assert (logits - reference[position - 1]).abs().max() < 1e-4


@pytest.mark.parametrize("values", [{}, {"quantization": "Int8"}])
def test_the_same_bits_in_any_company_and_any_cut(
    values: dict[str, str], make_model: Any, load: Any, script: Any
) -> None:
    runner = load(make_model("llama"), **values)
    lengths = (70, 3, 41, 20)
    seen: list[dict[int, torch.Tensor]] = [{} for _ in lengths]
    for seed in range(6):
        rows = random_scripts(script, lengths, random.Random(1))
        cuts = ((1,), (1, 2, 30), (50, 100))[seed % 3]
        for known, heard in zip(seen, play(runner, rows, random.Random(seed), cuts), strict=True):
            for position, logits in heard.items():
                assert torch.equal(known.setdefault(position, logits), logits)


@pytest.mark.parametrize(
    ("values", "gap"),
    [
        ({"dtype": "bfloat16"}, 0.05),
        ({"quantization": "Int8"}, 0.05),
        ({"kv_cache_dtype": "Int8"}, 0.05),
        ({"quantization": "Int8", "kv_cache_dtype": "Int8"}, 0.1),
    ],
)
def test_what_is_rounded_stays_close(
    values: dict[str, str], gap: float, tiny: Path, load: Any, script: Any
) -> None:
    tokens = list(range(90))
    runner = load(tiny, **values)
    assert isinstance(runner, NativeRunner)
    logits = runner.logits([script(tokens, tuple(range(6))).row(90)])[0]
    expected = reference_logits(tiny, tokens)[-1]
    assert (logits - expected).abs().max() < gap * expected.abs().max()


def test_int8_kv_takes_a_third_of_the_memory(
    make_model: Any, load: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway_server.runner.placement.available_memory", lambda: 64 * 2**20)
    folder = make_model("llama", head_dim=64)
    plain = load(folder, kv_capacity_tokens=None).kv_capacity_tokens
    small = load(folder, kv_capacity_tokens=None, kv_cache_dtype="Int8").kv_capacity_tokens
    assert small > 3.5 * plain


def test_tokens_come_for_rows_that_sample_with_the_hidden_state_behind_them(
    tiny: Path, load: Any, script: Any
) -> None:
    runner = load(tiny)
    silent, speaking = script([1, 2, 3], (0,)).row(2), script([1, 2, 3], (1,)).row(3)
    object.__setattr__(silent, "samples", False)
    result = runner.launch([silent, speaking]).result()
    model = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    with torch.inference_mode():
        last = model.model(torch.tensor([[1, 2, 3]])).last_hidden_state[0, -1]
        token = model.lm_head(last).argmax()
    assert result.tokens == [None, token]
    np.testing.assert_allclose(result.hidden, last[None], atol=1e-4)
    nothing = runner.launch([silent]).result()
    assert nothing.tokens == [None]
    assert nothing.hidden.shape == (0, 32)


def test_too_little_memory_for_a_step_is_said_so_and_the_next_one_works(
    tiny: Path, load: Any, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = load(tiny)
    expected = runner.logits([script([1, 2, 3], (0,)).row(3)])
    with monkeypatch.context() as patch:
        patch.setattr(runner._engine._library, "headway_forward", lambda *arguments: 1)
        with pytest.raises(StepTooLarge):
            runner.launch([script([1, 2, 3], (0,)).row(3)])
    assert torch.equal(runner.logits([script([1, 2, 3], (0,)).row(3)]), expected)


@pytest.mark.parametrize(
    ("model_type", "values", "words"),
    [
        ("granite", {"residual_multiplier": 0.3}, "differ from the reference"),
        ("olmo2", {}, "which has a post_feedforward_layernorm"),
        ("cohere", {}, "which has"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}},
            "rotary positions of type dynamic",
        ),
    ],
)
def test_what_it_does_not_cover_is_left_to_torch(
    model_type: str,
    values: dict[str, Any],
    words: str,
    make_model: Any,
    load: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert isinstance(load(make_model(model_type, **values)), TorchRunner)
    (record,) = caplog.records
    assert words in record.getMessage()


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise NativeUnavailable("there is no C++ compiler")

    monkeypatch.setattr("headway_server.native.engine.load_library", fail)


@pytest.mark.usefixtures("without_library")
def test_without_the_library_torch_takes_over(
    tiny: Path, load: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert isinstance(load(tiny), TorchRunner)
    assert "there is no C++ compiler" in caplog.text


@pytest.mark.usefixtures("without_library")
@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"quantization": "Int8"}, "quantization Int8"),
        ({"kv_cache_dtype": "Int8"}, "kvCacheDtype Int8"),
    ],
)
def test_int8_is_refused_where_it_cannot_be_had(
    values: dict[str, str], name: str, tiny: Path, load: Callable[..., Any]
) -> None:
    with pytest.raises(ModelLoadError, match=f"^{name} needs the native CPU path, which is off"):
        load(tiny, **values)


def test_the_checkpoints_precision_is_kept(make_model: Any, load: Any) -> None:
    lines: list[str] = []
    load(make_model("llama"), dtype="auto", progress=lines.append)
    assert "as float32" in lines[0]
    assert "float32 weights" in lines[-1]
