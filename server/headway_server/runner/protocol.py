# SPDX-License-Identifier: Apache-2.0
"""What the engine asks of a runner: one forward pass over a ragged batch, and one token a row.

A runner owns the memory behind the KV blocks; which block belongs to whom is the engine's affair.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headway_server.engine.messages import Sampling


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence's part of a step: compute `token_ids` at positions `start ..`.

    The KV of position p lives in block `block_table[p // block_size]`, and that of all positions
    before `start` is there already. `samples` is False for a prompt chunk with more to follow.
    """

    request_id: str
    token_ids: tuple[int, ...]
    start: int
    block_table: tuple[int, ...]
    samples: bool
    sampling: Sampling


class RunnerLost(Exception):
    """The runner cannot be used any more, for instance after a fault of the device."""


class Runner(Protocol):
    """`kv_capacity_tokens` is a multiple of `block_size`; `max_step_tokens` bounds one batch."""

    @property
    def kv_capacity_tokens(self) -> int: ...
    @property
    def block_size(self) -> int: ...
    @property
    def max_step_tokens(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...

    def execute(self, batch: Sequence[Row]) -> list[int | None]:
        """The sampled token of each row, None where `samples` is False.

        Called from one thread only. After an exception the rows of this batch are lost; the next
        batch must work, unless the exception is RunnerLost.
        """
        ...
