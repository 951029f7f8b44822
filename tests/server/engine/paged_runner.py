# SPDX-License-Identifier: Apache-2.0
"""A runner whose KV is real: what it draws depends on all tokens that it finds in the blocks.

If two requests ever share a block wrongly, or one reads what was not written for it, the answer
is another one. Each token depends on the sequence before it and on nothing else.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from headway_server.engine.messages import TokenLogprob
from headway_server.runner.protocol import Row, StepResult
from headway_server.runner.simulated import StepTime

Hook = Callable[[Sequence[Row]], None]
VOCABULARY = 50


def draw(tokens: Sequence[int], allowed: Collection[int] = range(VOCABULARY)) -> int:
    return sorted(allowed)[hash(tuple(tokens)) % len(allowed)]


def answer(prompt: Sequence[int], tokens: int) -> list[int]:
    """What it says to this prompt with nobody else there."""
    sequence = list(prompt)
    for _ in range(tokens):
        sequence.append(draw(sequence))
    return sequence[len(prompt) :]


@dataclass
class Launched:
    """A step under way."""

    outcome: StepResult
    runner: "PagedRunner"

    def result(self) -> StepResult:
        if self.runner.before_result:
            self.runner.before_result()
        return self.outcome


class PagedRunner:
    """`during_step` is called at each launch, `before_result` before each result; both may
    raise."""

    block_size = 4
    max_step_tokens = 4096
    vocab_size = VOCABULARY

    def __init__(
        self, kv_tokens: int, sleep: Callable[[float], None], runs_ahead: bool = False
    ) -> None:
        self.kv_capacity_tokens = kv_tokens
        self.runs_ahead = runs_ahead
        self.during_step: Hook | None = None
        self.before_result: Callable[[], None] | None = None
        self.hidden = False
        self._sleep = sleep
        self._kv = [-1] * kv_tokens
        self._sampled: dict[str, int] = {}

    def launch(self, batch: Sequence[Row]) -> Launched:
        if self.during_step is not None:
            self.during_step(batch)
        self._sleep(StepTime().seconds(batch))
        last, self._sampled = self._sampled, {}
        tokens = [self._compute(row, last) for row in batch]
        logprobs = {
            index: TokenLogprob(token, -1.0)
            for index, (row, token) in enumerate(zip(batch, tokens, strict=True))
            if token is not None and row.sampling.logprobs is not None
        }
        hidden = np.zeros((sum(row.samples for row in batch), 2), np.float32)
        result = StepResult(tokens, logprobs, hidden if self.hidden else None)
        return Launched(result, self)

    def _compute(self, row: Row, last: dict[str, int]) -> int | None:
        token_ids = (last[row.request_id],) if row.carried else row.token_ids
        for position, token in enumerate(token_ids, row.start):
            self._kv[self._slot(row, position)] = token
        if not row.samples:
            return None
        end = row.start + len(token_ids)
        sequence = [self._kv[self._slot(row, position)] for position in range(end)]
        token = draw(sequence, self._allowed(row))
        self._sampled[row.request_id] = token
        return token

    def _slot(self, row: Row, position: int) -> int:
        block = row.block_table[position // self.block_size]
        return block * self.block_size + position % self.block_size

    def _allowed(self, row: Row) -> Collection[int]:
        allowed = set(range(VOCABULARY)) - row.banned
        if row.matcher is not None:
            mask = np.zeros(-(-VOCABULARY // 32), np.int32)
            row.matcher.fill(mask)
            allowed = {token for token in allowed if int(mask[token // 32]) >> token % 32 & 1}
        return allowed
