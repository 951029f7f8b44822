# SPDX-License-Identifier: Apache-2.0
"""The native library's threads and step memory. Not safe to call from two threads at once.

A call returns when its work is done; Python's lock is free meanwhile.
"""

import weakref
from ctypes import byref

import numpy as np
from numpy.typing import NDArray

from headway_server.native import abi
from headway_server.native.library import NativeUnavailable, load_library

Floats = NDArray[np.float32]


class Engine:
    def __init__(self, threads: int, instruction_set: str | None = None) -> None:
        """Without `instruction_set` the best that this machine has. Raises NativeUnavailable."""
        self._library = load_library()
        wanted = instruction_set.encode() if instruction_set else None
        self._handle = self._library.headway_open(threads, wanted)
        if not self._handle:
            raise NativeUnavailable(f"{threads} threads or {instruction_set} cannot be had")
        self.threads = threads
        self.instruction_set: str = self._library.headway_name(self._handle).decode()
        self.close = weakref.finalize(self, self._library.headway_close, self._handle)

    def forward(self, model: abi.Model, batch: abi.Batch) -> None:
        """Raises MemoryError, and IndexError on a token or position that the model lacks."""
        check(self._library.headway_forward(self._handle, byref(model), byref(batch)))

    def attend(
        self, model: abi.Model, layer: int, batch: abi.Batch, qkv: Floats, output: Floats
    ) -> None:
        """One layer's attention; `qkv` [T, all heads * dim] is changed."""
        args = (byref(model), layer, byref(batch), qkv.ctypes.data, output.ctypes.data)
        check(self._library.headway_attend(self._handle, *args))

    def multiply(self, matrix: abi.Matrix, lines: Floats) -> Floats:
        """`lines` [n, inputs] to [n, outputs]."""
        lines = np.ascontiguousarray(lines, dtype=np.float32)
        out = np.empty((len(lines), matrix.outputs), dtype=np.float32)
        args = (byref(matrix), lines.ctypes.data, len(lines), out.ctypes.data)
        check(self._library.headway_multiply(self._handle, *args))
        return out

    def normalise(self, line: Floats, weight: Floats, epsilon: float) -> Floats:
        out = np.empty_like(line)
        args = (line.ctypes.data, weight.ctypes.data, len(line), epsilon, out.ctypes.data)
        self._library.headway_normalise(self._handle, *args)
        return out

    def pack(
        self, source: abi.Source, kind: abi.Kind, panels: int | None, first: int, step: int
    ) -> None:
        """The source's panels become number first, first + step, ... of those at `panels`."""
        self._library.headway_pack(self._handle, byref(source), kind, panels, first, step)


def check(outcome: int) -> None:
    if outcome == abi.Outcome.NO_MEMORY:
        raise MemoryError("no memory for this step")
    if outcome == abi.Outcome.OUT_OF_RANGE:
        raise IndexError("a token id or a position is outside of the model's")
