# SPDX-License-Identifier: Apache-2.0
"""Which tokens a grammar lets come next, found out while the forward pass runs.

Must not import torch: the simulated runner follows grammars too.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway_server.runner.protocol import Row

filling = ThreadPoolExecutor(1, "headway-masks")


@dataclass(frozen=True, slots=True)
class Mask:
    """Either the tokens that are allowed or those that are not, whichever are fewer."""

    tokens: NDArray[np.int64]
    allows: bool


class MaskFill:
    """The grammar masks of some rows, filled on a thread of their own from the moment this is
    made. `take` waits for them; they are by index of the row."""

    def __init__(self, rows: Sequence[Row], vocab_size: int) -> None:
        indices = [index for index, row in enumerate(rows) if row.matcher is not None]
        self._filled: Future[dict[int, Mask]] | None = None
        if indices:
            self._filled = filling.submit(fill_masks, rows, indices, vocab_size)

    def take(self) -> dict[int, Mask]:
        return self._filled.result() if self._filled is not None else {}


def fill_masks(rows: Sequence[Row], indices: Sequence[int], vocab_size: int) -> dict[int, Mask]:
    return {index: mask_of(allowed_tokens(rows[index], vocab_size)) for index in indices}


def allowed_tokens(row: Row, vocab_size: int) -> NDArray[np.bool_]:
    """By token id. A grammar goes before a ban: where that would leave nothing, it is lifted."""
    allowed = np.ones(vocab_size, np.bool_)
    if row.matcher is not None:
        words = np.zeros(-(-vocab_size // 32), np.int32)
        row.matcher.fill(words)
        bits = np.unpackbits(words.astype("<i4", copy=False).view(np.uint8), bitorder="little")
        allowed = bits[:vocab_size].view(np.bool_)
    rest = allowed.copy()
    rest[list(row.banned)] = False
    return rest if rest.any() else allowed


def mask_of(allowed: NDArray[np.bool_]) -> Mask:
    allows = int(np.count_nonzero(allowed)) * 2 <= len(allowed)
    return Mask(np.flatnonzero(allowed if allows else ~allowed), allows)
