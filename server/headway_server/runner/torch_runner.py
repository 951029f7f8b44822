# SPDX-License-Identifier: Apache-2.0
"""Runs a real model with torch: transformers' class for it, over our own paged KV.

A step is one ragged forward pass of prompt chunks and decode rows together. Everything here is
the same on CPU and CUDA; what differs is chosen in `placement`.
"""

import logging
import time
from collections.abc import Sequence

import torch

from headway_server.model_folder import ModelFolder, Progress
from headway_server.native.library import NativeUnavailable
from headway_server.runner.kv_cache import PagedKvCache, bytes_per_token
from headway_server.runner.native_runner import NativeRunner, load_native_runner
from headway_server.runner.placement import (
    Placement,
    Precision,
    choose_placement,
    kv_blocks,
    use_allowed_cpus,
)
from headway_server.runner.protocol import (
    Finished,
    Row,
    RunnerLost,
    Step,
    StepResult,
    StepTooLarge,
)
from headway_server.runner.ragged import build_batch
from headway_server.runner.sampling import sample
from headway_server.runner.weights import Model, forward, load_weights, try_out

BLOCK_SIZE = 16

log = logging.getLogger(__name__)


class TorchRunner:
    runs_ahead = False

    def __init__(self, model: Model, cache: PagedKvCache, max_step_tokens: int) -> None:
        self._model = model
        self._cache = cache
        self._device = torch.device(model.device)
        self.vocab_size: int = model.get_input_embeddings().num_embeddings
        self.max_step_tokens = max_step_tokens
        self.block_size = cache.block_size
        self.kv_capacity_tokens = cache.capacity_tokens

    def launch(self, batch: Sequence[Row]) -> Step:
        sampling = [index for index, row in enumerate(batch) if row.samples]
        try:
            tokens = sample(self.logits(batch), [batch[index] for index in sampling])
        except torch.AcceleratorError as error:
            raise RunnerLost(f"the device failed: {error}") from error
        except torch.OutOfMemoryError as error:
            raise StepTooLarge(f"no memory for a step of {len(batch)} rows") from error
        result: list[int | None] = [None] * len(batch)
        for index, token in zip(sampling, tokens, strict=True):
            result[index] = token
        return Finished(StepResult(result))

    def logits(self, batch: Sequence[Row]) -> torch.Tensor:
        """Computes the batch; [S, vocabulary], after the last token of each row that samples."""
        ragged = build_batch(batch, self._cache, self._device)
        return forward(
            self._model, ragged.token_ids, ragged.position_ids, ragged.logits_at, ragged.step
        )[0]


def load_torch_runner(
    folder: ModelFolder,
    *,
    device: str,
    dtype: str,
    kv_capacity_tokens: int | None,
    gpu_memory_utilization_percent: int,
    progress: Progress,
    quantization: str = "None",
    kv_cache_dtype: str = "Auto",
    native: bool = True,
) -> TorchRunner | NativeRunner:
    """On the CPU the native runner, where it covers the model and `native` allows it. Raises
    ModelLoadError. Without `kv_capacity_tokens` the KV cache gets what memory is left."""
    use_allowed_cpus()
    place = choose_placement(device, dtype, folder.config)
    precision = Precision(dtype, quantization, kv_cache_dtype)
    why = "this is not the CPU" if place.on_cuda else "it was switched off"
    if native and not place.on_cuda:
        try:
            return load_native_runner(folder, place, precision, kv_capacity_tokens, progress)
        except NativeUnavailable as error:
            why = str(error)
            log.warning("the native CPU path is off, torch's is slower: %s", why)
    precision.demand_none(why)
    return load_plain_runner(
        folder, place, kv_capacity_tokens, gpu_memory_utilization_percent, progress
    )


def load_plain_runner(
    folder: ModelFolder,
    place: Placement,
    kv_capacity_tokens: int | None,
    gpu_memory_utilization_percent: int,
    progress: Progress,
) -> TorchRunner:
    started = time.monotonic()
    progress(f"loading the weights of {folder.path} as {place.dtype_name} on {place.device}")
    model = load_weights(folder, place.dtype, place.device)
    progress(f"weights loaded after {time.monotonic() - started:.1f} s; trying the model out")
    shapes = try_out(model, folder, place.trial_tokens)
    blocks = kv_blocks(
        place,
        bytes_per_token(shapes, place.dtype) * BLOCK_SIZE,
        BLOCK_SIZE,
        kv_capacity_tokens,
        gpu_memory_utilization_percent,
    )
    cache = PagedKvCache(shapes, blocks, BLOCK_SIZE, place.dtype, place.device)
    progress(f"KV cache of {cache.capacity_tokens} tokens; ready to serve")
    return TorchRunner(model, cache, place.max_step_tokens)
