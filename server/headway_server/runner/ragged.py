# SPDX-License-Identifier: Apache-2.0
"""From the engine's rows to the tensors of one forward pass: all tokens in one line, no padding."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway_server.runner.attention import PagedStep, RowGroup
from headway_server.runner.kv_cache import PagedKvCache
from headway_server.runner.protocol import Row

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RaggedBatch:
    """token_ids and position_ids [1, T]; logits_at [S]: the tokens whose logits are wanted;
    sampling_rows: the row of each of those."""

    token_ids: Tensor
    position_ids: Tensor
    logits_at: Tensor
    sampling_rows: list[int]
    step: PagedStep


def build_batch(rows: Sequence[Row], cache: PagedKvCache, device: torch.device) -> RaggedBatch:
    def tensor(values: Ints) -> Tensor:
        return torch.from_numpy(values).to(device)

    lengths = [len(row.token_ids) for row in rows]
    ends = np.cumsum(lengths)
    starts = ends - lengths
    positions = [np.arange(row.start, row.start + n) for row, n in zip(rows, lengths, strict=True)]
    slots = [
        slots_of(row, position, cache.block_size)
        for row, position in zip(rows, positions, strict=True)
    ]
    groups = [
        RowGroup(
            tokens=tensor(np.stack([np.arange(starts[i], ends[i]) for i in group])),
            positions=tensor(np.stack([positions[i] for i in group])),
            blocks=tensor(padded_blocks([rows[i] for i in group], cache.block_size)),
        )
        for group in alike(rows, cache.block_size)
    ]
    sampling_rows = [index for index, row in enumerate(rows) if row.samples]
    return RaggedBatch(
        token_ids=tensor(np.concatenate([np.asarray(row.token_ids) for row in rows]))[None],
        position_ids=tensor(np.concatenate(positions))[None],
        logits_at=tensor(ends[sampling_rows] - 1),
        sampling_rows=sampling_rows,
        step=PagedStep(cache, tensor(np.concatenate(slots)), groups),
    )


def slots_of(row: Row, positions: Ints, block_size: int) -> Ints:
    blocks: Ints = np.asarray(row.block_table)[positions // block_size]
    return blocks * block_size + positions % block_size


def blocks_in_use(row: Row, block_size: int) -> int:
    return -(-(row.start + len(row.token_ids)) // block_size)


def alike(rows: Sequence[Row], block_size: int) -> list[list[int]]:
    """Rows of one token are attended together with those of about their length, so that padding
    stays under a factor of two; a prompt chunk is attended alone."""
    chunks = [[index] for index, row in enumerate(rows) if len(row.token_ids) > 1]
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        if len(row.token_ids) == 1:
            groups[(blocks_in_use(row, block_size) - 1).bit_length()].append(index)
    return chunks + list(groups.values())


def padded_blocks(rows: Sequence[Row], block_size: int) -> Ints:
    counts = [blocks_in_use(row, block_size) for row in rows]
    table = np.zeros((len(rows), max(counts)), dtype=np.int64)
    for index, (row, count) in enumerate(zip(rows, counts, strict=True)):
        table[index, :count] = row.block_table[:count]
    return table
