# SPDX-License-Identifier: Apache-2.0
"""The bench's workload: lengths, seeds and prompts."""

from math import sqrt
from pathlib import Path

import pytest

from headway_bench.engine.prompts import prompt_writer
from headway_bench.engine.requests import log_uniform, mixed_requests
from headway_bench.engine.sizes import FULL


def lengths(count: int, seed: int) -> list[tuple[int, int]]:
    made = mixed_requests(count, (16, 384), (8, 192), lambda length: (0,) * length, seed)
    return [(len(request.prompt), request.output_tokens) for request in made]


def test_lengths_are_log_uniform_over_their_span() -> None:
    made = log_uniform((16, 384), 200)
    assert min(made) >= 16
    assert max(made) <= 384
    below = sum(length < sqrt(16 * 384) for length in made)
    assert below == 100


def test_one_request_has_the_middle_length_and_many_have_its_mean() -> None:
    assert lengths(1, seed=0) == [(78, 39)]
    prompts = [prompt for prompt, _ in lengths(32, seed=0)]
    assert sum(prompts) / 32 == pytest.approx((384 - 16) / 3.178, rel=0.02)


def test_equal_seeds_give_equal_requests() -> None:
    assert lengths(32, seed=3) == lengths(32, seed=3)
    assert lengths(32, seed=3) != lengths(32, seed=4)


@pytest.mark.parametrize("with_tokenizer", [True, False])
def test_prompts_have_the_length_asked_for_and_no_common_start(
    tmp_path: Path, with_tokenizer: bool
) -> None:
    if with_tokenizer:
        write_tokenizer(tmp_path)
    write = prompt_writer(tmp_path, vocab_size=300, seed=1)
    prompts = [write(length) for length in (8, 40, 40, 100)]
    assert [len(prompt) for prompt in prompts] == [8, 40, 40, 100]
    assert len({prompt[:8] for prompt in prompts}) == 4
    assert all(0 <= token < 300 for prompt in prompts for token in prompt)
    again = prompt_writer(tmp_path, vocab_size=300, seed=1)
    assert again(8) == prompts[0]


def write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel

    tokenizer = Tokenizer(BPE({letter: n for n, letter in enumerate(ByteLevel.alphabet())}, []))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.save(str(folder / "tokenizer.json"))


def test_lengths_are_cut_to_the_context_of_the_model() -> None:
    fitted = FULL.fitted(256)
    assert fitted.prompt_tokens[1] + fitted.output_tokens[1] <= 256
    assert fitted.long_prompt < 256
    assert fitted.prefix_prompt < 256
    assert FULL.fitted(100_000) == FULL
