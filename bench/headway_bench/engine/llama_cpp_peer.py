# SPDX-License-Identifier: Apache-2.0
"""llama.cpp as a peer: continuous batching over its batch API, through llama-cpp-python.

Every step holds one token of each running sequence and fills up with prompt tokens, which is what
its own server does. The model is a GGUF file of the same model, requantised as asked.
"""

import ctypes
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from headway_bench.engine.contender import Served
from headway_bench.engine.requests import BenchRequest
from headway_bench.engine.under_test import BenchFailed

STEP_TOKENS = 512
QUANTISATIONS = ("Q4_0", "Q8_0")
INSTALL = (
    "--peer llama.cpp needs llama-cpp-python, built for this machine: "
    "CMAKE_ARGS=-DGGML_NATIVE=ON pip install llama-cpp-python (minutes to compile)"
)


def llama_library() -> Any:
    """The low-level bindings, quiet. Raises BenchFailed where they are not installed."""
    try:
        library = import_module("llama_cpp.llama_cpp")
    except ImportError as error:
        raise BenchFailed(INSTALL) from error
    library.llama_backend_init()
    library.llama_log_set(silence(library), ctypes.c_void_p(0))
    return library


@dataclass(slots=True)
class Lane:
    """One sequence under way; `fed` tokens of it are in the cache or in the step being made."""

    number: int
    request: BenchRequest
    index: int
    fed: int = 0
    answer: list[int] = field(default_factory=list)
    logits_at: int | None = None

    @property
    def prompt_left(self) -> int:
        return max(0, len(self.request.prompt) - self.fed)

    @property
    def done(self) -> bool:
        return len(self.answer) == self.request.output_tokens


class LlamaCpp:
    """One quantisation of the model. `close` gives the memory back."""

    def __init__(self, gguf: Path, quantisation: str, threads: int) -> None:
        self._llama = llama_library()
        self._threads = threads
        self.name = f"llama.cpp {quantisation}"
        self.settings = {
            "quantisation": quantisation,
            "stepTokens": STEP_TOKENS,
            "cache": "unified, cut to the requests",
        }
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / f"{quantisation}.gguf"
            quantise(self._llama, gguf, file, quantisation, threads)
            parameters = self._llama.llama_model_default_params()
            parameters.n_gpu_layers = 0
            self._model = self._llama.llama_model_load_from_file(str(file).encode(), parameters)
        if not self._model:
            raise BenchFailed(f"llama.cpp cannot load {gguf}: is it a GGUF file of this model?")
        vocabulary = self._llama.llama_model_get_vocab(self._model)
        self._vocab_size: int = self._llama.llama_vocab_n_tokens(vocabulary)

    def close(self) -> None:
        self._llama.llama_model_free(self._model)

    def serve(self, requests: Sequence[BenchRequest]) -> Served:
        context = self._context(requests)
        batch = self._llama.llama_batch_init(STEP_TOKENS, 0, 1)
        try:
            started = time.perf_counter()
            answers = self._loop(context, batch, requests)
            return Served(time.perf_counter() - started, answers)
        finally:
            self._llama.llama_batch_free(batch)
            self._llama.llama_free(context)

    def _context(self, requests: Sequence[BenchRequest]) -> Any:
        parameters = self._llama.llama_context_default_params()
        parameters.n_ctx = sum(request.tokens for request in requests)
        parameters.n_batch = parameters.n_ubatch = STEP_TOKENS
        parameters.n_seq_max = len(requests)
        parameters.n_threads = parameters.n_threads_batch = self._threads
        parameters.kv_unified = True
        context = self._llama.llama_init_from_model(self._model, parameters)
        if not context:
            raise BenchFailed(f"{self.name} has no memory for {parameters.n_ctx} tokens")
        return context

    def _loop(self, context: Any, batch: Any, requests: Sequence[BenchRequest]) -> list[list[int]]:
        """A sequence id a request, so as many sequences as requests."""
        memory = self._llama.llama_get_memory(context)
        answers: list[list[int]] = [[] for _ in requests]
        running = deque(Lane(index, request, index) for index, request in enumerate(requests))
        while running:
            self._fill(batch, running)
            code = self._llama.llama_decode(context, batch)
            if code != 0:
                raise BenchFailed(f"{self.name} failed on a step of {batch.n_tokens}: code {code}")
            for lane in running:
                if lane.logits_at is not None:
                    lane.answer.append(self._greedy(context, lane.logits_at))
            for lane in [lane for lane in running if lane.done]:
                answers[lane.index] = lane.answer
                self._llama.llama_memory_seq_rm(memory, lane.number, -1, -1)
                running.remove(lane)
        return answers

    def _fill(self, batch: Any, running: deque[Lane]) -> None:
        batch.n_tokens = 0
        for lane in running:
            lane.logits_at = None
        for lane in (lane for lane in running if not lane.prompt_left):
            lane.logits_at = self._add(batch, lane, lane.answer[-1], wants_logits=True)
        for lane in (lane for lane in running if lane.prompt_left and lane.logits_at is None):
            for token in lane.request.prompt[lane.fed :][: STEP_TOKENS - batch.n_tokens]:
                position = self._add(batch, lane, token, wants_logits=lane.prompt_left == 1)
            if not lane.prompt_left:
                lane.logits_at = position

    def _add(self, batch: Any, lane: Lane, token: int, wants_logits: bool) -> int:
        """Returns the token's index in the batch."""
        index: int = batch.n_tokens
        batch.token[index] = token
        batch.pos[index] = lane.fed
        batch.n_seq_id[index] = 1
        batch.seq_id[index][0] = lane.number
        batch.logits[index] = wants_logits
        batch.n_tokens = index + 1
        lane.fed += 1
        return index

    def _greedy(self, context: Any, index: int) -> int:
        logits = self._llama.llama_get_logits_ith(context, index)
        return int(np.ctypeslib.as_array(logits, (self._vocab_size,)).argmax())


def quantise(llama: Any, source: Path, target: Path, quantisation: str, threads: int) -> None:
    parameters = llama.llama_model_quantize_default_params()
    parameters.ftype = getattr(llama, f"LLAMA_FTYPE_MOSTLY_{quantisation}")
    parameters.allow_requantize = True
    parameters.nthread = threads
    code = llama.llama_model_quantize(
        str(source).encode(), str(target).encode(), ctypes.byref(parameters)
    )
    if code != 0:
        raise BenchFailed(f"llama.cpp cannot requantise {source} to {quantisation}")


def silence(llama: Any) -> Any:
    """Kept by the library for good, so it must never be collected."""
    if not hasattr(llama, "headway_silence"):
        llama.headway_silence = llama.llama_log_callback(lambda level, text, data: None)
    return llama.headway_silence
