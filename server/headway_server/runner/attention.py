# SPDX-License-Identifier: Apache-2.0
"""Attention over paged KV, plugged into transformers' model classes under a name of its own.

The models call `paged_attention` in every layer and pass the step through as a keyword. A name that
transformers does not know makes it build no mask; which key each query sees is decided here.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from headway_server.runner.kv_cache import LayerShape, PagedKvCache

ATTENTION_NAME = "headway_paged"

# Keywords that change the meaning of attention in a way that is not implemented here.
UNSUPPORTED = ("softcap", "s_aux", "position_bias")


class UnsupportedAttention(Exception):
    """The model's attention needs something that is not implemented; the message says what."""


class AttentionStep(Protocol):
    """One forward pass, as the attention layers see it. Queries, keys, values and the result are
    [T, heads, dim], of all rows together."""

    def attend(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scaling: float | None,
        window: int | None,
    ) -> Tensor: ...


def paged_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    paged: AttentionStep,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The interface's contract: tensors are [1, heads, T, dim], the result [1, T, heads, dim]."""
    for name in UNSUPPORTED:
        if kwargs.get(name) is not None:
            raise UnsupportedAttention(f"attention with {name}")
    if not getattr(module, "is_causal", True):
        raise UnsupportedAttention("attention that is not causal")
    layer: int = module.layer_idx
    query, key, value = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    return paged.attend(layer, query, key, value, scaling, sliding_window)[None], None


AttentionInterface.register(ATTENTION_NAME, paged_attention)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """`n` rows of `t` queries each, that are attended in one call.

    tokens [n, t]: where the queries are in the batch. positions [n, t]: theirs in the sequence.
    blocks [n, m]: the block tables, shorter ones padded with any block.
    """

    tokens: Tensor
    positions: Tensor
    blocks: Tensor

    def mask(self, block_size: int, window: int | None) -> Tensor:
        """[n, 1, t, m * block_size], True where a query sees a key."""
        keys = torch.arange(self.blocks.shape[1] * block_size, device=self.blocks.device)
        queries = self.positions[:, None, :, None]
        visible = keys <= queries
        return visible if window is None else visible & (keys > queries - window)


class PagedStep:
    """Writes the step's KV to `slots` [T], then attends to what is in the cache, by groups."""

    def __init__(self, cache: PagedKvCache, slots: Tensor, groups: list[RowGroup]) -> None:
        self._cache = cache
        self._slots = slots
        self._groups = groups
        self._masks: dict[int | None, list[Tensor]] = {}

    def attend(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scaling: float | None,
        window: int | None,
    ) -> Tensor:
        self._cache.write(layer, self._slots, key, value)
        out = query.new_empty(*query.shape[:2], value.shape[2])
        for group, mask in zip(self._groups, self._masks_for(window), strict=True):
            keys, values = self._cache.read(layer, group.blocks)
            out[group.tokens] = attend(query[group.tokens], keys, values, mask, scaling)
        return out

    def _masks_for(self, window: int | None) -> list[Tensor]:
        """All layers of a step with the same window share their masks."""
        if window not in self._masks:
            size = self._cache.block_size
            self._masks[window] = [group.mask(size, window) for group in self._groups]
        return self._masks[window]


class ShapeProbe:
    """Runs a model without a cache and notes, by layer, what would be kept of a token and how its
    attention is scaled and limited."""

    def __init__(self) -> None:
        self.shapes: dict[int, LayerShape] = {}
        self.scalings: dict[int, float] = {}
        self.windows: dict[int, int | None] = {}

    def attend(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scaling: float | None,
        window: int | None,
    ) -> Tensor:
        self.shapes[layer] = LayerShape(key.shape[1], key.shape[2], value.shape[2])
        self.scalings[layer] = query.shape[2] ** -0.5 if scaling is None else scaling
        self.windows[layer] = window
        positions = torch.arange(len(query), device=query.device)
        mask = positions <= positions[:, None]
        if window is not None:
            mask &= positions > positions[:, None] - window
        keys, values = key.transpose(0, 1)[None], value.transpose(0, 1)[None]
        return attend(query[None], keys, values, mask, scaling)[0]


def attend(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scaling: float | None
) -> Tensor:
    """`query` and the result [n, t, heads, dim], `keys` and `values` [n, kv_heads, length, dim].

    With one query a row, the query heads that share a KV head are passed as queries of that head,
    which reads each key once.
    """
    rows, queries, heads, dim = query.shape
    kv_heads = keys.shape[1]
    if queries == 1:
        packed = query.view(rows, kv_heads, heads // kv_heads, dim)
        out = scaled_dot_product_attention(packed, keys, values, mask, scale=scaling)
        return out.reshape(rows, 1, heads, -1)
    out = scaled_dot_product_attention(
        query.transpose(1, 2), keys, values, mask, scale=scaling, enable_gqa=heads != kv_heads
    )
    return out.transpose(1, 2)
