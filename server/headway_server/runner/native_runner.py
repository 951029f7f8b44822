# SPDX-License-Identifier: Apache-2.0
"""Runs a plain decoder on the CPU by the native library: one call is one forward pass.

The model is transformers' own until its answers were compared; then only the packed weights stay.
"""

import dataclasses
import time
from collections.abc import Sequence

import torch

from headway_server.engine.messages import Sampling
from headway_server.model_folder import ModelFolder, Progress
from headway_server.native.abi import BLOCK, Kind
from headway_server.native.engine import Engine
from headway_server.native.library import NativeUnavailable
from headway_server.runner.native_batch import NativeBatch, build_native_batch
from headway_server.runner.packed_model import KINDS, PackedModel
from headway_server.runner.placement import Placement, Precision, kv_blocks, stored_dtype
from headway_server.runner.plain_decoder import NotPlain, read_plain_decoder
from headway_server.runner.protocol import Finished, Row, Step, StepTooLarge
from headway_server.runner.reference import (
    reference_logits,
    relative_difference,
    trial_sequences,
)
from headway_server.runner.sampling import Sampler
from headway_server.runner.weights import load_weights, try_out

# How far the logits may be from the reference. What is rounded differs by a few percent; what is
# not, by the order of summation only.
ROUNDED_DIFFERENCE = 0.1
EXACT_DIFFERENCE = 1e-4
KV_ROUNDED_DIFFERENCE = 0.03


# Tokens of one step, and with it the default of maxBatchPrefillTokens. Smaller steps cost more a
# token, larger ones hold a short request beside a long prompt up for longer and bring nothing.
MAX_STEP_TOKENS = 128


class NativeRunner:
    runs_ahead = False

    def __init__(
        self, engine: Engine, model: PackedModel, kv_capacity_tokens: int, max_step_tokens: int
    ) -> None:
        self._engine = engine
        self._model = model
        self.kv_capacity_tokens = kv_capacity_tokens
        self.block_size = BLOCK
        self.max_step_tokens = max_step_tokens
        self.vocab_size = model.vocabulary
        self._sampler = Sampler(model.vocabulary)

    def launch(self, batch: Sequence[Row]) -> Step:
        drawing = self._sampler.begin(batch)
        computed = self._compute(batch)
        drawn = drawing.draw(torch.from_numpy(computed.logits))
        return Finished(dataclasses.replace(drawn, hidden=computed.hidden))

    def logits(self, batch: Sequence[Row]) -> torch.Tensor:
        """Computes the batch; [S, vocabulary], after the last token of each row that samples."""
        return torch.from_numpy(self._compute(batch).logits)

    def _compute(self, batch: Sequence[Row]) -> NativeBatch:
        try:
            arrays = build_native_batch(batch, self._model.hidden, self.vocab_size)
            self._engine.forward(self._model.structure, arrays.structure)
        except MemoryError as error:
            raise StepTooLarge(f"no memory for a step of {len(batch)} rows") from error
        return arrays


def load_native_runner(
    folder: ModelFolder,
    place: Placement,
    precision: Precision,
    kv_capacity_tokens: int | None,
    progress: Progress,
) -> NativeRunner:
    """Raises NativeUnavailable where this model or machine needs another runner, and
    ModelLoadError."""
    started = time.monotonic()
    engine = Engine(torch.get_num_threads())
    if precision.dtype == "auto":
        place = dataclasses.replace(place, dtype=stored_dtype(folder.config))
    progress(f"loading the weights of {folder.path} as {place.dtype_name} on {place.device}")
    model = load_weights(folder, place.dtype, place.device)
    progress(f"weights loaded after {time.monotonic() - started:.1f} s; trying the model out")
    try_out(model, folder, place.trial_tokens)
    sequences = trial_sequences(folder.vocab_size, folder.context_length)
    try:
        probe, reference = reference_logits(model, sequences)
        plain = read_plain_decoder(model, probe, folder.context_length)
    except (NotPlain, AttributeError) as error:
        raise NativeUnavailable(f"it does not cover this model, which has {error}") from error
    weights = Kind.INT8 if precision.int8_weights else KINDS.get(place.dtype, Kind.FLOAT32)
    packed = PackedModel(engine, plain, weights)
    del model, plain
    kept = kv_kind(place, precision)
    blocks = kv_blocks(place, packed.block_bytes(kept), BLOCK, kv_capacity_tokens, 0)
    packed.allocate_kv(blocks, kept)
    runner = NativeRunner(engine, packed, blocks * BLOCK, MAX_STEP_TOKENS)
    compare(runner, sequences, reference, tolerance(weights, kept))
    progress(
        f"KV cache of {runner.kv_capacity_tokens} tokens ({kept.name.lower()}) beside "
        f"{weights.name.lower()} weights, {engine.instruction_set} kernels on {engine.threads} "
        "threads; ready to serve"
    )
    return runner


def kv_kind(place: Placement, precision: Precision) -> Kind:
    if precision.int8_kv:
        return Kind.INT8
    return Kind.FLOAT32 if place.dtype == torch.float32 else Kind.BFLOAT16


def tolerance(weights: Kind, kept: Kind) -> float:
    if Kind.INT8 in (weights, kept):
        return ROUNDED_DIFFERENCE
    return EXACT_DIFFERENCE if kept is Kind.FLOAT32 else KV_ROUNDED_DIFFERENCE


def compare(
    runner: NativeRunner, sequences: list[list[int]], reference: torch.Tensor, allowed: float
) -> None:
    """Each sequence in two parts, where it has two and the cache holds it. Raises
    NativeUnavailable."""
    for sequence, expected in zip(sequences, reference, strict=True):
        if len(sequence) > runner.kv_capacity_tokens:
            continue
        cut = len(sequence) // 3
        parts = [(0, sequence[:cut]), (cut, sequence[cut:])] if cut else [(0, sequence)]
        for start, tokens in parts:
            logits = runner.logits([trial_row(tokens, start)])[0]
        difference = relative_difference(logits, expected)
        if not difference <= allowed:
            raise NativeUnavailable(
                f"its logits for this model differ from the reference by {difference:.2%}"
            )


def trial_row(tokens: Sequence[int], start: int) -> Row:
    blocks = range(-(-(start + len(tokens)) // BLOCK))
    return Row("trial", tuple(tokens), start, blocks, True, Sampling())
