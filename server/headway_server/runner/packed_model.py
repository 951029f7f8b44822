# SPDX-License-Identifier: Apache-2.0
"""A plain decoder's weights in the native library's panels, and the KV blocks beside them.

Packing takes torch's weights away matrix by matrix, so that they never lie in memory twice.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway_server.native import abi
from headway_server.native.abi import BLOCK, PANEL, Kind, panel_bytes, up
from headway_server.native.engine import Engine
from headway_server.runner.plain_decoder import PlainDecoder, PlainLayer, Rows

KINDS = {torch.float32: Kind.FLOAT32, torch.bfloat16: Kind.BFLOAT16}


class PackedModel:
    """`structure` is what the library reads; this keeps the memory behind it."""

    def __init__(self, engine: Engine, plain: PlainDecoder, kind: Kind) -> None:
        self._engine = engine
        self._kind = kind
        self._kept: list[Any] = []
        self.hidden = len(plain.final_norm)
        self.vocabulary = len(plain.head.weight)
        self.kv_heads = plain.shape.heads
        self.head_dim = plain.shape.key_dim
        self._layers = (abi.Layer * len(plain.layers))()
        self.structure = self._model(plain)
        for target, layer in zip(self._layers, plain.layers, strict=True):
            self._pack_layer(target, layer)
        self.structure.head = self._pack([plain.head])

    @property
    def layers(self) -> int:
        return len(self._layers)

    def block_bytes(self, kind: Kind) -> int:
        """Memory of one KV block in all layers."""
        numbers = up(self.head_dim, PANEL) * kind.itemsize
        scale = 4 if kind is Kind.INT8 else 0
        return self.layers * self.kv_heads * BLOCK * 2 * (numbers + scale)

    def allocate_kv(self, blocks: int, kind: Kind) -> None:
        """numpy's zeros take up no memory until they are written."""
        numbers = blocks * self.kv_heads * BLOCK * up(self.head_dim, PANEL) * kind.itemsize
        scales = blocks * self.kv_heads * BLOCK * 4 if kind is Kind.INT8 else 0
        self.structure.kv_kind = kind
        for layer in self._layers:
            layer.keys, layer.values = self._zeros(numbers), self._zeros(numbers)
            layer.key_scales, layer.value_scales = self._zeros(scales), self._zeros(scales)

    def _model(self, plain: PlainDecoder) -> abi.Model:
        embedding = plain.embedding.weight.detach()
        if embedding.dtype not in KINDS:
            embedding = embedding.float()
        return abi.Model(
            layers=len(plain.layers),
            hidden=self.hidden,
            heads=plain.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            rotary_dim=2 * plain.cosines.shape[1],
            ffn=plain.ffn,
            vocabulary=self.vocabulary,
            positions=len(plain.cosines),
            embedding_kind=KINDS[embedding.dtype],
            kv_kind=Kind.FLOAT32,
            activation=plain.activation,
            norm_epsilon=plain.norm_epsilon,
            embedding_scale=plain.embedding_scale,
            embedding=self._tensor(embedding),
            cosines=self._tensor(plain.cosines),
            sines=self._tensor(plain.sines),
            final_norm=self._tensor(plain.final_norm),
            layer=self._layers,
        )

    def _pack_layer(self, target: abi.Layer, layer: PlainLayer) -> None:
        target.attention_norm = self._tensor(layer.attention_norm)
        target.mlp_norm = self._tensor(layer.mlp_norm)
        target.query_norm = self._tensor(layer.query_norm)
        target.key_norm = self._tensor(layer.key_norm)
        target.qkv = self._pack(list(layer.qkv))
        target.out = self._pack([layer.out])
        target.gate_up = self._pack([layer.gate, layer.up], in_turn=True)
        target.down = self._pack([layer.down])
        target.scaling = layer.scaling
        target.window = layer.window or 0
        target.rotates = layer.rotates

    def _pack(self, parts: list[Rows], in_turn: bool = False) -> abi.Matrix:
        """One matrix of all parts: one after the other, or panel by panel in turn."""
        if not in_turn and len(parts) > 1:
            weights = [torch.cat([part.weight for part in parts])]
            biases = [joined_bias(parts)]
        else:
            weights = [part.weight for part in parts]
            biases = [part.bias for part in parts]
        inputs = weights[0].shape[1]
        count, step = up(len(weights[0]), PANEL) // PANEL, len(weights)
        panels = self._zeros(count * step * panel_bytes(inputs, self._kind))
        for first, weight in enumerate(weights):
            weight = weight.contiguous() if weight.dtype in KINDS else weight.float()
            source = abi.Source(weight.data_ptr(), len(weight), inputs, KINDS[weight.dtype])
            self._engine.pack(source, self._kind, panels, first, step)
        outputs = len(weights[0]) if step == 1 else count * step * PANEL
        del weights
        for part in parts:
            release(part)
        return abi.Matrix(panels, self._bias(biases, count), outputs, inputs, self._kind)

    def _bias(self, biases: list[Tensor | None], panels: int) -> int | None:
        if all(bias is None for bias in biases):
            return None
        packed = torch.zeros(panels, len(biases), PANEL)
        for index, bias in enumerate(biases):
            if bias is not None:
                padded = torch.zeros(panels * PANEL)
                padded[: len(bias)] = bias
                packed[:, index] = padded.view(panels, PANEL)
        return self._tensor(packed)

    def _tensor(self, tensor: Tensor | None) -> int | None:
        if tensor is None:
            return None
        tensor = tensor.contiguous()
        self._kept.append(tensor)
        return int(tensor.data_ptr())

    def _zeros(self, size: int) -> int | None:
        """Aligned to a cache line."""
        if not size:
            return None
        memory: NDArray[np.uint8] = np.zeros(size + 64, dtype=np.uint8)
        self._kept.append(memory)
        return up(memory.ctypes.data, 64)


def joined_bias(parts: list[Rows]) -> Tensor | None:
    if all(part.bias is None for part in parts):
        return None
    return torch.cat(
        [torch.zeros(len(p.weight)) if p.bias is None else p.bias.float() for p in parts]
    )


def release(part: Rows) -> None:
    """Torch's weight goes once its last part is packed. An embedding that is tied to it stays."""
    if part.end is None:
        part.linear.weight = None
