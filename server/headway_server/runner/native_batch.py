# SPDX-License-Identifier: Apache-2.0
"""From the engine's rows to the arrays that the native library reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from headway_server.native import abi
from headway_server.native.abi import BLOCK
from headway_server.runner.protocol import Row
from headway_server.runner.ragged import padded_blocks

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class NativeBatch:
    """hidden [S, hidden size] and logits [S, vocabulary] are what the library writes; the other
    arrays are kept because `structure` holds their addresses."""

    structure: abi.Batch
    hidden: Floats
    logits: Floats
    inputs: tuple[Ints, ...]


def build_native_batch(rows: Sequence[Row], hidden_size: int, vocabulary: int) -> NativeBatch:
    """Raises MemoryError."""
    lengths = [len(row.token_ids) for row in rows]
    begins = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum(lengths, out=begins[1:])
    starts = np.array([row.start for row in rows], dtype=np.int32)
    tokens = int(begins[-1])
    token_ids = np.fromiter(chain.from_iterable(row.token_ids for row in rows), np.int32, tokens)
    positions = np.arange(tokens, dtype=np.int32) + np.repeat(starts - begins[:-1], lengths)
    tables = np.ascontiguousarray(padded_blocks(rows, BLOCK), dtype=np.int32)
    sampled = begins[1:][[row.samples for row in rows]] - 1
    hidden = np.empty((len(sampled), hidden_size), dtype=np.float32)
    logits = np.empty((len(sampled), vocabulary), dtype=np.float32)
    inputs = (token_ids, positions.astype(np.int32), begins, tables, sampled)
    structure = abi.Batch(
        tokens,
        len(rows),
        tables.shape[1],
        len(sampled),
        *(array.ctypes.data for array in (*inputs, hidden, logits)),
    )
    return NativeBatch(structure, hidden, logits, inputs)
