# SPDX-License-Identifier: Apache-2.0
"""What the engine asks of a runner: one forward pass over a ragged batch, and one token a row.

A runner owns the memory behind the KV blocks; which block belongs to whom is the engine's affair.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headway_server.engine.messages import Sampling, TokenLogprob, TokenMatcher


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence's part of a step: compute `token_ids` at positions `start ..`.

    The KV of position p lives in block `block_table[p // block_size]`, and that of all positions
    before `start` is there already. `samples` is False for a prompt chunk with more to follow.

    `carried`: the one token is the one that this request's row of the previous launch samples; its
    id is not known yet, and `token_ids` holds a 0 in its place. `history` (prompt, answer) is there
    where `sampling.uses_history`; `banned` tokens are not drawn; `matcher` masks the others.
    """

    request_id: str
    token_ids: tuple[int, ...]
    start: int
    block_table: Sequence[int]
    samples: bool
    sampling: Sampling
    carried: bool = False
    history: tuple[Sequence[int], Sequence[int]] | None = None
    banned: frozenset[int] = frozenset()
    matcher: TokenMatcher | None = None


@dataclass(frozen=True, slots=True)
class StepResult:
    """`tokens` has one entry a row, None where the row does not sample. `logprobs` is by index of
    the row, for those that asked. `hidden` [rows that sample, hidden size], in their order: the
    last layer's output that their logits came from; None if the runner does not give it."""

    tokens: list[int | None]
    logprobs: Mapping[int, TokenLogprob] = field(default_factory=dict)
    hidden: NDArray[np.float32] | None = None


class Step(Protocol):
    """A step under way."""

    def result(self) -> StepResult:
        """Waits for the step. Called once."""
        ...


@dataclass(frozen=True, slots=True)
class Finished:
    """A step of a runner that computes in `launch`."""

    outcome: StepResult

    def result(self) -> StepResult:
        return self.outcome


class RunnerLost(Exception):
    """The runner cannot be used any more, for instance after a fault of the device."""


class StepTooLarge(Exception):
    """There was not enough memory for this step; a smaller one will do."""


class Runner(Protocol):
    """`kv_capacity_tokens` is a multiple of `block_size`; `max_step_tokens` bounds one batch.

    `runs_ahead`: a second step may be launched before the first one's result was taken.
    """

    @property
    def kv_capacity_tokens(self) -> int: ...
    @property
    def block_size(self) -> int: ...
    @property
    def max_step_tokens(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def runs_ahead(self) -> bool: ...

    def launch(self, batch: Sequence[Row]) -> Step:
        """Starts a step; steps are carried out in the order in which they were launched.

        Called from one thread only. After an exception, here or in `result`, the rows of the batch
        are lost; the next batch must work, unless the exception is RunnerLost.
        """
        ...
