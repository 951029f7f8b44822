# SPDX-License-Identifier: Apache-2.0
"""The matrix products of a model's linear layers and nothing else, each with weights of its own.

Walking through all weights once a round keeps them out of the processor's caches, as in a real
step. From here come the matmul limit, where the runner has none, and the peers' number format.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import linear

Shape = tuple[int, int]


def linear_shapes(folder: Path) -> list[Shape]:
    """(outputs, inputs) of every linear layer, the head included, without loading a weight."""
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        model = AutoModelForCausalLM.from_config(config)
    return [
        (module.out_features, module.in_features)
        for module in model.modules()
        if isinstance(module, torch.nn.Linear)
    ]


class LinearLayers:
    """Random weights: how long a product takes does not depend on the numbers in it."""

    def __init__(self, shapes: Sequence[Shape], dtype: torch.dtype, device: str) -> None:
        self._weights = [torch.randn(shape, device=device).to(dtype) for shape in shapes]

    def seconds(self, rows: int) -> float:
        """One round through all layers, `rows` tokens each."""
        widths = {weight.shape[1] for weight in self._weights}
        like = self._weights[0]
        inputs = {
            width: torch.randn(rows, width, device=like.device).to(like.dtype) for width in widths
        }
        with torch.inference_mode():
            wait_for(like.device)
            started = time.perf_counter()
            for weight in self._weights:
                linear(inputs[weight.shape[1]], weight)
            wait_for(like.device)
            return time.perf_counter() - started


def faster_dtype(shapes: Sequence[Shape], rows: int, device: str) -> str:
    """bfloat16 or float32, whichever is faster here for one layer of each shape; best of two."""
    seconds = {}
    for name in ("bfloat16", "float32"):
        layers = LinearLayers(sorted(set(shapes)), getattr(torch, name), device)
        seconds[name] = min(layers.seconds(rows) for _ in range(2))
    return min(seconds, key=lambda name: seconds[name])


def wait_for(device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
