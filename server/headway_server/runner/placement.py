# SPDX-License-Identifier: Apache-2.0
"""Where a model runs, in which number format, and how much memory its KV may take there."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from headway_server.load_error import ModelLoadError
from headway_server.runner.host import available_memory, usable_cpus

# Tokens of one step, and with it the default of maxBatchPrefillTokens. CPU: from 128 tokens on a
# larger step is hardly cheaper a token, but holds decodes up longer. CUDA: the default of TGI.
MAX_STEP_TOKENS = {"cpu": 256, "cuda": 4096}

# CPU: share of the memory that is free once the weights are loaded; the rest is for the steps.
CPU_KV_PERCENT = 40

# CPU features that make bfloat16 matrix products faster than float32; without one of them they
# are emulated, several times slower.
FAST_BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16")

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}


@dataclass(frozen=True, slots=True)
class Placement:
    device: torch.device
    dtype: torch.dtype
    max_step_tokens: int

    @property
    def on_cuda(self) -> bool:
        return str(self.device.type) == "cuda"

    @property
    def dtype_name(self) -> str:
        return str(self.dtype).removeprefix("torch.")

    @property
    def trial_tokens(self) -> int:
        """On CUDA the trial is the largest step, so that its peak of memory can be read off."""
        return self.max_step_tokens if self.on_cuda else 8


@dataclass(frozen=True, slots=True)
class Precision:
    """The user's words: `dtype` auto or a key of DTYPES, `quantization` None or Int8 (weights),
    `kv_cache_dtype` Auto or Int8."""

    dtype: str
    quantization: str
    kv_cache_dtype: str

    @property
    def int8_weights(self) -> bool:
        return self.quantization == "Int8"

    @property
    def int8_kv(self) -> bool:
        return self.kv_cache_dtype == "Int8"

    def demand_none(self, why: str) -> None:
        """Raises ModelLoadError if anything is asked for that only the native path has."""
        for asked, name in (
            (self.int8_weights, "quantization Int8"),
            (self.int8_kv, "kvCacheDtype Int8"),
        ):
            if asked:
                raise ModelLoadError(f"{name} needs the native CPU path, which is off: {why}")


def choose_placement(device: str, dtype: str, config: Mapping[str, Any]) -> Placement:
    """`device` auto, cpu or cuda; `dtype` auto or a key of DTYPES. Raises ModelLoadError."""
    has_cuda = torch.cuda.is_available()
    if device == "cuda" and not has_cuda:
        raise ModelLoadError("no GPU is visible to this process: request one, or use --device cpu")
    place = torch.device("cuda" if has_cuda and device != "cpu" else "cpu")
    chosen = DTYPES[dtype] if dtype != "auto" else automatic_dtype(place, config)
    return Placement(place, chosen, MAX_STEP_TOKENS[place.type])


def automatic_dtype(device: torch.device, config: Mapping[str, Any]) -> torch.dtype:
    """CUDA: the checkpoint's. CPU: whichever the processor computes faster."""
    if device.type == "cuda":
        return stored_dtype(config)
    features = torch.cpu.get_capabilities()
    fast = any(features.get(feature) for feature in FAST_BFLOAT16)
    return torch.bfloat16 if fast else torch.float32


def stored_dtype(config: Mapping[str, Any]) -> torch.dtype:
    stored = config.get("dtype") or config.get("torch_dtype")
    return DTYPES.get(str(stored), torch.bfloat16)


def use_allowed_cpus() -> None:
    """A container's CPU quota does not show in the CPU count that torch sizes its pool by, and
    more threads than that slow each other down badly."""
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(usable_cpus())


def kv_blocks(
    place: Placement,
    block_bytes: int,
    block_size: int,
    capacity_tokens: int | None,
    gpu_memory_utilization_percent: int,
) -> int:
    """How many KV blocks to allocate: `capacity_tokens` worth, or what is left of the memory once
    weights are loaded and a trial step was run. Raises ModelLoadError if there is no room."""
    free = free_cuda(gpu_memory_utilization_percent) if place.on_cuda else available_memory()
    share = free if place.on_cuda else free * CPU_KV_PERCENT // 100
    blocks = share // block_bytes if capacity_tokens is None else capacity_tokens // block_size
    if blocks < 1:
        raise ModelLoadError(
            f"no room for a KV cache: {max(share, 0) >> 20} MiB are left, "
            f"{block_size} tokens need {max(block_bytes >> 10, 1)} KiB"
        )
    if blocks * block_bytes > free:
        raise ModelLoadError(
            f"a KV cache of {blocks * block_size} tokens needs {blocks * block_bytes >> 20} MiB, "
            f"{max(free, 0) >> 20} MiB are free: lower --kv-cache-capacity-tokens"
        )
    return blocks


def free_cuda(utilization_percent: int) -> int:
    """Bytes: the allowed share of the device, less other processes, less the trial step's peak."""
    free, total = torch.cuda.mem_get_info()
    others = total - free - torch.cuda.memory_reserved()
    peak = torch.cuda.max_memory_allocated()
    torch.cuda.empty_cache()
    allowed = total * utilization_percent // 100
    return int(allowed - others - peak)
