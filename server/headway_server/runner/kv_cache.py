# SPDX-License-Identifier: Apache-2.0
"""The memory behind the KV blocks: one key and one value tensor a layer, cut into blocks.

It knows nothing of requests: a slot is `block * block_size + offset`, and whose it is, is the
engine's affair.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one attention layer keeps of a token."""

    heads: int
    key_dim: int
    value_dim: int

    @property
    def numbers_per_token(self) -> int:
        return self.heads * (self.key_dim + self.value_dim)


def bytes_per_token(shapes: Mapping[int, LayerShape], dtype: torch.dtype) -> int:
    size: int = dtype.itemsize
    return sum(shape.numbers_per_token for shape in shapes.values()) * size


def zeros(size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """On the CPU numpy's, whose pages take up no memory until they are written; torch's do."""
    if device.type != "cpu":
        return torch.zeros(size, dtype=dtype, device=device)
    data = np.zeros(math.prod(size) * dtype.itemsize, dtype=np.uint8)
    return torch.from_numpy(data).view(dtype).view(size)


class PagedKvCache:
    """Tensors [slots, heads, dim] by layer index. Memory is zeroed: unused slots are masked out
    in attention, and a NaN there would survive the mask."""

    def __init__(
        self,
        shapes: Mapping[int, LayerShape],
        blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.block_size = block_size
        self.capacity_tokens = blocks * block_size
        self._keys = {}
        self._values = {}
        for layer, shape in shapes.items():
            size = (blocks, block_size, shape.heads)
            self._keys[layer] = zeros((*size, shape.key_dim), dtype, device)
            self._values[layer] = zeros((*size, shape.value_dim), dtype, device)

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """`slots` [T], `keys` and `values` [T, heads, dim].

        What is not finite becomes 0, so that one sequence's overflow cannot reach the next owner
        of the block.
        """
        for cache, new in ((self._keys[layer], keys), (self._values[layer], values)):
            finite = torch.nan_to_num(new, nan=0.0, posinf=0.0, neginf=0.0)
            cache.flatten(0, 1).index_copy_(0, slots, finite)

    def read(self, layer: int, blocks: Tensor) -> tuple[Tensor, Tensor]:
        """`blocks` [n, m] to keys and values [n, heads, m * block_size, dim]."""
        keys, values = self._keys[layer][blocks], self._values[layer][blocks]
        return keys.flatten(1, 2).transpose(1, 2), values.flatten(1, 2).transpose(1, 2)
