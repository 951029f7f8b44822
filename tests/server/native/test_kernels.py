# SPDX-License-Identifier: Apache-2.0
"""Each kernel against plain numpy and torch, at sizes that are no multiple of anything."""

import ctypes
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from headway_server.native import abi
from headway_server.native.abi import Kind, panel_bytes, up
from headway_server.native.engine import Engine

Floats = NDArray[np.float32]


def numbers(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class Packed:
    """A weight [outputs, inputs] in panels, and the memory behind it."""

    def __init__(self, engine: Engine, weight: Floats, kind: Kind, bias: Floats | None) -> None:
        outputs, inputs = weight.shape
        panels = up(outputs, abi.PANEL) // abi.PANEL
        self.memory = np.zeros(panels * panel_bytes(inputs, kind), dtype=np.uint8)
        self.bias = np.zeros(panels * abi.PANEL, dtype=np.float32)
        if bias is not None:
            self.bias[:outputs] = bias
        source = abi.Source(weight.ctypes.data, outputs, inputs, Kind.FLOAT32)
        engine.pack(source, kind, self.memory.ctypes.data, 0, 1)
        address = self.memory.ctypes.data
        self.matrix = abi.Matrix(address, self.bias.ctypes.data, outputs, inputs, kind)


def kept(weight: Floats, kind: Kind) -> Floats:
    """The weight as the kind keeps it."""
    if kind is Kind.FLOAT32:
        return weight
    if kind is Kind.BFLOAT16:
        rounded: Floats = torch.from_numpy(weight).bfloat16().float().numpy()
        return rounded
    outputs, inputs = weight.shape
    padded = np.zeros((outputs, up(inputs, abi.GROUP)), dtype=np.float32)
    padded[:, :inputs] = weight
    groups = padded.reshape(outputs, -1, abi.GROUP)
    scales = np.abs(groups).max(axis=2, keepdims=True) / 127
    whole = np.rint(groups / np.where(scales > 0, scales, 1))
    back: Floats = (whole * scales).reshape(outputs, -1)[:, :inputs].astype(np.float32)
    return back


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("rows", [1, 2, 5, 7, 19])
@pytest.mark.parametrize("shape", [(1, 1), (16, 32), (37, 65), (97, 701)])
def test_a_product_with_a_packed_matrix(
    engine: Engine, kind: Kind, rows: int, shape: tuple[int, int]
) -> None:
    weight, bias, lines = numbers(*shape), numbers(shape[0], seed=1), numbers(rows, shape[1])
    packed = Packed(engine, weight, kind, bias)
    expected = lines.astype(np.float64) @ kept(weight, kind).T.astype(np.float64) + bias
    np.testing.assert_allclose(
        engine.multiply(packed.matrix, lines), expected, rtol=1e-3, atol=2e-3
    )


@pytest.mark.parametrize("kind", list(Kind))
def test_a_line_gets_the_same_bits_alone_and_among_others(engine: Engine, kind: Kind) -> None:
    packed = Packed(engine, numbers(53, 700), kind, None)
    lines = numbers(23, 700, seed=2)
    together = engine.multiply(packed.matrix, lines)
    for index in range(len(lines)):
        assert (engine.multiply(packed.matrix, lines[index : index + 1]) == together[index]).all()
    assert (engine.multiply(packed.matrix, lines[3:11]) == together[3:11]).all()


def test_an_endless_number_stays_in_its_own_line(engine: Engine) -> None:
    lines = numbers(9, 70)
    for kind in Kind:
        packed = Packed(engine, numbers(40, 70), kind, None)
        expected = engine.multiply(packed.matrix, lines)
        broken = lines.copy()
        broken[4] = [np.inf, np.nan] * 35
        out = engine.multiply(packed.matrix, broken)
        assert (np.delete(out, 4, axis=0) == np.delete(expected, 4, axis=0)).all()


@pytest.mark.parametrize("size", [1, 8, 30, 577])
def test_the_norm(engine: Engine, size: int) -> None:
    line, weight = numbers(size), numbers(size, seed=1)
    expected = torch.nn.functional.rms_norm(
        torch.from_numpy(line), (size,), torch.from_numpy(weight), 1e-5
    )
    out = engine.normalise(line, weight, 1e-5)
    np.testing.assert_allclose(out, expected.numpy(), rtol=1e-5, atol=1e-6)


HEADS, KV_HEADS, POSITIONS = 6, 2, 300


class Attention:
    """One layer's attention over a cache, by the library."""

    def __init__(self, engine: Engine, dim: int, window: int, kind: Kind) -> None:
        self.engine, self.dim, blocks = engine, dim, 64
        size = blocks * KV_HEADS * abi.BLOCK
        self.kept: list[Any] = [
            np.zeros(size * up(dim, abi.PANEL) * kind.itemsize, dtype=np.uint8) for _ in range(2)
        ] + [np.zeros(size, dtype=np.float32) for _ in range(2)]
        angles = np.arange(POSITIONS)[:, None] / 50 ** (np.arange(dim // 2) / dim)
        self.cosines = np.cos(angles).astype(np.float32)
        self.sines = np.sin(angles).astype(np.float32)
        keys, values, key_scales, value_scales = (array.ctypes.data for array in self.kept)
        layer = abi.Layer(scaling=dim**-0.5, window=window, rotates=True)
        layer.keys, layer.values = keys, values
        layer.key_scales, layer.value_scales = key_scales, value_scales
        self.layers = (abi.Layer * 1)(layer)
        self.model = abi.Model(
            layers=1, hidden=HEADS * dim, heads=HEADS, kv_heads=KV_HEADS, head_dim=dim
        )
        self.model.rotary_dim, self.model.ffn, self.model.vocabulary = dim, 1, 10
        self.model.positions, self.model.kv_kind = POSITIONS, kind
        self.model.cosines, self.model.sines = self.cosines.ctypes.data, self.sines.ctypes.data
        self.model.layer = ctypes.cast(self.layers, ctypes.POINTER(abi.Layer))

    def run(self, qkv: Floats, starts: list[int], lengths: list[int]) -> Floats:
        """Rows one after the other in `qkv`; row r has blocks of its own."""
        begins = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        positions = np.concatenate(
            [np.arange(s, s + n) for s, n in zip(starts, lengths, strict=True)]
        ).astype(np.int32)
        tables = np.arange(len(starts) * 20, dtype=np.int32)[::-1].reshape(-1, 20).copy()
        ids = np.zeros(len(qkv), dtype=np.int32)
        arrays = (ids, positions, begins, tables)
        batch = abi.Batch(len(qkv), len(starts), 20, 0, *(array.ctypes.data for array in arrays))
        out = np.empty((len(qkv), HEADS * self.dim), dtype=np.float32)
        self.engine.attend(self.model, 0, batch, qkv.copy(), out)
        return out

    def rotated(self, heads: Floats) -> Floats:
        """`heads` [T, n, dim] at positions 0 .. T - 1."""
        half = self.dim // 2
        cosines, sines = self.cosines[: len(heads), None], self.sines[: len(heads), None]
        first, second = heads[..., :half], heads[..., half:]
        return np.concatenate(
            [first * cosines - second * sines, second * cosines + first * sines], axis=-1
        )

    def expected(self, qkv: Floats, window: int) -> Floats:
        split = qkv.reshape(len(qkv), HEADS + 2 * KV_HEADS, self.dim)
        queries = self.rotated(split[:, :HEADS])
        keys = self.rotated(split[:, HEADS : HEADS + KV_HEADS])
        at = np.arange(len(qkv))
        seen = (at <= at[:, None]) & (at > at[:, None] - (window or len(qkv)))
        out = torch.nn.functional.scaled_dot_product_attention(
            *(
                torch.from_numpy(np.ascontiguousarray(x)).transpose(0, 1)[None]
                for x in (queries, keys, split[:, HEADS + KV_HEADS :])
            ),
            attn_mask=torch.from_numpy(seen),
            enable_gqa=True,
        )
        lines: Floats = out[0].transpose(0, 1).reshape(len(qkv), -1).numpy()
        return lines


@pytest.mark.parametrize(
    ("kind", "gap"), [(Kind.FLOAT32, 1e-5), (Kind.BFLOAT16, 0.03), (Kind.INT8, 0.05)]
)
@pytest.mark.parametrize("window", [0, 1, 13, 100])
@pytest.mark.parametrize("dim", [8, 24, 64])
def test_attention_over_the_cache(
    engine: Engine, kind: Kind, gap: float, window: int, dim: int
) -> None:
    attention = Attention(engine, dim, window, kind)
    sequences = [numbers(n, (HEADS + 2 * KV_HEADS) * dim, seed=n) for n in (130, 1, 47)]
    expected = [attention.expected(qkv, window) for qkv in sequences]
    done = [0, 0, 0]
    while any(n < len(s) for n, s in zip(done, sequences, strict=True)):
        ends = [min(n + 33, len(s)) for n, s in zip(done, sequences, strict=True)]
        parts = [s[n:e] for s, n, e in zip(sequences, done, ends, strict=True)]
        out = attention.run(np.concatenate(parts), done, [len(part) for part in parts])
        for index, part in enumerate(parts):
            got, out = out[: len(part)], out[len(part) :]
            wanted = expected[index][done[index] : ends[index]]
            assert len(part) == 0 or np.abs(got - wanted).max() < gap
        done = ends


def test_a_querys_attention_is_the_same_in_any_cut(engine: Engine) -> None:
    qkv = numbers(150, (HEADS + 2 * KV_HEADS) * 24)
    whole = Attention(engine, 24, 37, Kind.FLOAT32).run(qkv, [0], [150])
    cut = Attention(engine, 24, 37, Kind.FLOAT32)
    done = 0
    for length in (1, 1, 29, 2, 64, 1, 52):
        part = cut.run(qkv[done : done + length], [done], [length])
        assert (part == whole[done : done + length]).all()
        done += length


def test_tokens_and_positions_that_the_model_lacks_are_refused(engine: Engine) -> None:
    attention = Attention(engine, 8, 0, Kind.FLOAT32)
    qkv = numbers(1, (HEADS + 2 * KV_HEADS) * 8)
    with pytest.raises(IndexError):
        attention.run(qkv, [POSITIONS], [1])
