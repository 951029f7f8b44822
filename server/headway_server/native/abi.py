# SPDX-License-Identifier: Apache-2.0
"""The library's structures as ctypes sees them: field by field those of src/abi.h and src/pack.h.

Pointers are plain addresses; whoever fills a structure keeps the memory behind them alive.
"""

from ctypes import POINTER, Structure, c_float, c_int32, c_void_p
from enum import IntEnum

PANEL = 16
BLOCK = 16
GROUP = 32
GROUP_BYTES = GROUP * PANEL + PANEL * 4


class Kind(IntEnum):
    """How numbers are kept; all are computed with in float32."""

    FLOAT32 = 0
    BFLOAT16 = 1
    INT8 = 2

    @property
    def itemsize(self) -> int:
        return (4, 2, 1)[self]


class Activation(IntEnum):
    SILU = 0
    GELU_TANH = 1


class Outcome(IntEnum):
    DONE = 0
    NO_MEMORY = 1
    OUT_OF_RANGE = 2


class Matrix(Structure):
    _fields_ = (
        ("panels", c_void_p),
        ("bias", c_void_p),
        ("outputs", c_int32),
        ("inputs", c_int32),
        ("kind", c_int32),
    )


class Layer(Structure):
    _fields_ = (
        ("attention_norm", c_void_p),
        ("mlp_norm", c_void_p),
        ("query_norm", c_void_p),
        ("key_norm", c_void_p),
        ("qkv", Matrix),
        ("out", Matrix),
        ("gate_up", Matrix),
        ("down", Matrix),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("key_scales", c_void_p),
        ("value_scales", c_void_p),
        ("scaling", c_float),
        ("window", c_int32),
        ("rotates", c_int32),
    )


class Model(Structure):
    _fields_ = (
        ("layers", c_int32),
        ("hidden", c_int32),
        ("heads", c_int32),
        ("kv_heads", c_int32),
        ("head_dim", c_int32),
        ("rotary_dim", c_int32),
        ("ffn", c_int32),
        ("vocabulary", c_int32),
        ("positions", c_int32),
        ("embedding_kind", c_int32),
        ("kv_kind", c_int32),
        ("activation", c_int32),
        ("norm_epsilon", c_float),
        ("embedding_scale", c_float),
        ("embedding", c_void_p),
        ("cosines", c_void_p),
        ("sines", c_void_p),
        ("final_norm", c_void_p),
        ("head", Matrix),
        ("layer", POINTER(Layer)),
    )


class Batch(Structure):
    _fields_ = (
        ("tokens", c_int32),
        ("rows", c_int32),
        ("table_stride", c_int32),
        ("sampled", c_int32),
        ("token_ids", c_void_p),
        ("positions", c_void_p),
        ("row_begin", c_void_p),
        ("block_tables", c_void_p),
        ("sampled_at", c_void_p),
        ("hidden", c_void_p),
        ("logits", c_void_p),
    )


class Source(Structure):
    """A weight [outputs, inputs] as it is stored, float32 or bfloat16."""

    _fields_ = (
        ("values", c_void_p),
        ("outputs", c_int32),
        ("inputs", c_int32),
        ("kind", c_int32),
    )


def up(value: int, step: int) -> int:
    return -(-value // step) * step


def panel_bytes(inputs: int, kind: Kind) -> int:
    """Of one panel of PANEL outputs."""
    if kind is Kind.INT8:
        return up(inputs, GROUP) // GROUP * GROUP_BYTES
    return inputs * PANEL * kind.itemsize
