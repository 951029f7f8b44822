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

DTYPE_ROUNDS = 5


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


def seconds_by_dtype(shapes: Sequence[Shape], rows: int, device: str) -> dict[str, float]:
    """Of one round in bfloat16 and in float32: the best of rounds that took turns. All layers, in
    their real proportions: the formats do not differ by the same factor for every shape."""
    layers = {
        name: LinearLayers(shapes, getattr(torch, name), device) for name in ("bfloat16", "float32")
    }
    rounds = [{name: of.seconds(rows) for name, of in layers.items()} for _ in range(DTYPE_ROUNDS)]
    return {name: min(seconds[name] for seconds in rounds) for name in layers}


def wait_for(device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
