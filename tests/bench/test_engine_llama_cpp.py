# SPDX-License-Identifier: Apache-2.0
"""The loop over llama.cpp's batch API, against a stand-in that checks what it is fed.

The stand-in's next token is a function of all tokens of the sequence so far, so a token that was
left out, doubled, misplaced or given to another sequence changes the answer.
"""

import ctypes
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway_bench.engine import llama_cpp_peer
from headway_bench.engine.llama_cpp_peer import LlamaCpp, llama_library
from headway_bench.engine.requests import BenchRequest
from headway_bench.engine.under_test import BenchFailed

VOCABULARY = 101


def next_token(tokens: Sequence[int]) -> int:
    return sum((place + 1) * token for place, token in enumerate(tokens)) % VOCABULARY


class StandIn:
    LLAMA_FTYPE_MOSTLY_Q8_0 = 7

    def __init__(self, quantise_code: int = 0) -> None:
        self.sequences: dict[int, list[int]] = {}
        self.steps: list[int] = []
        self._logits: dict[int, Any] = {}
        self._quantise_code = quantise_code

    def __getattr__(self, name: str) -> Any:
        """What gives back a handle or takes one away."""
        return lambda *arguments: SimpleNamespace()

    def llama_model_quantize_default_params(self) -> ctypes.Structure:
        class Parameters(ctypes.Structure):
            _fields_ = [
                ("ftype", ctypes.c_int),
                ("allow_requantize", ctypes.c_bool),
                ("nthread", ctypes.c_int32),
            ]

        return Parameters()

    def llama_model_quantize(self, source: bytes, target: bytes, parameters: Any) -> int:
        return self._quantise_code

    def llama_vocab_n_tokens(self, vocabulary: Any) -> int:
        return VOCABULARY

    def llama_batch_init(self, tokens: int, embd: int, sequences: int) -> Any:
        assert (embd, sequences) == (0, 1)
        return SimpleNamespace(
            n_tokens=0, token=[0] * tokens, pos=[0] * tokens, n_seq_id=[0] * tokens,
            seq_id=[[0] for _ in range(tokens)], logits=[0] * tokens,
        )  # fmt: skip

    def llama_decode(self, context: Any, batch: Any) -> int:
        self.steps.append(batch.n_tokens)
        self._logits = {}
        for index in range(batch.n_tokens):
            tokens = self.sequences.setdefault(batch.seq_id[index][0], [])
            assert batch.n_seq_id[index] == 1
            assert batch.pos[index] == len(tokens)
            tokens.append(batch.token[index])
            if batch.logits[index]:
                values = [0.0] * VOCABULARY
                values[next_token(tokens)] = 1.0
                self._logits[index] = (ctypes.c_float * VOCABULARY)(*values)
        return 0

    def llama_get_logits_ith(self, context: Any, index: int) -> Any:
        return ctypes.cast(self._logits[index], ctypes.POINTER(ctypes.c_float))

    def llama_memory_seq_rm(self, memory: Any, sequence: int, start: int, end: int) -> bool:
        assert (start, end) == (-1, -1)
        del self.sequences[sequence]
        return True


def expected(request: BenchRequest) -> list[int]:
    tokens = list(request.prompt)
    for _ in range(request.output_tokens):
        tokens.append(next_token(tokens))
    return tokens[len(request.prompt) :]


def test_every_token_is_fed_once_in_its_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Prompts longer than a step are cut, steps are filled up, the short ones leave early."""
    library = StandIn()
    monkeypatch.setattr(llama_cpp_peer, "llama_library", lambda: library)
    monkeypatch.setattr(llama_cpp_peer, "STEP_TOKENS", 16)
    requests = [
        BenchRequest(tuple(range(1, prompt + 1)), output)
        for prompt, output in ((5, 9), (40, 3), (1, 1), (16, 6))
    ]
    served = LlamaCpp(tmp_path / "model.gguf", "Q8_0", threads=1).serve(requests)
    assert served.answers == [expected(request) for request in requests]
    assert library.sequences == {}
    assert max(library.steps) == 16
    assert library.steps[0] == library.steps[1] == 16


def test_a_file_that_cannot_be_requantised_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(llama_cpp_peer, "llama_library", lambda: StandIn(quantise_code=1))
    with pytest.raises(BenchFailed, match=r"cannot requantise .*model\.gguf to Q8_0"):
        LlamaCpp(tmp_path / "model.gguf", "Q8_0", threads=1)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(BenchFailed, match="pip install llama-cpp-python"):
        llama_library()
