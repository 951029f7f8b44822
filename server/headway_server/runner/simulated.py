# SPDX-License-Identifier: Apache-2.0
"""A runner without a model: the time of a step is a pure function of the batch.

For tests, for scale without hardware, and for trying out settings. Its tokens mean nothing, but
depend only on the sequence they continue, as a real model's do, and follow a grammar.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from headway_server.runner.masks import allowed_tokens
from headway_server.runner.protocol import Finished, Row, Step, StepResult


@dataclass(frozen=True, slots=True)
class StepTime:
    """Milliseconds of a step, affine in the decode rows and quadratic in the prompt chunks:

    decode  = decode_base + per_row * rows + per_kv_token * KV tokens of the rows
    prefill = prefill_base + per_prompt_token * x + per_prompt_token_squared * (2*cached*x + x*x)

    A step with both kinds pays the larger base once. The defaults have the magnitude of an
    8-billion-parameter model on one data-centre GPU.
    """

    decode_base: float = 25.0
    per_row: float = 0.25
    per_kv_token: float = 1e-4
    prefill_base: float = 20.0
    per_prompt_token: float = 0.12
    per_prompt_token_squared: float = 2e-6

    def seconds(self, batch: Sequence[Row]) -> float:
        decode = [row for row in batch if is_decode(row)]
        chunks = [(row.start, len(row.token_ids)) for row in batch if not is_decode(row)]
        base = max(self.decode_base * bool(decode), self.prefill_base * bool(chunks))
        rows = self.per_row * len(decode)
        kv = self.per_kv_token * sum(row.start + 1 for row in decode)
        prompt = self.per_prompt_token * sum(tokens for _, tokens in chunks)
        pairs = sum(2 * cached * tokens + tokens**2 for cached, tokens in chunks)
        return (base + rows + kv + prompt + self.per_prompt_token_squared * pairs) / 1000


def is_decode(row: Row) -> bool:
    return len(row.token_ids) == 1 and row.start > 0


class SimulatedRunner:
    """`never` are token ids that it does not draw, such as the end of an answer."""

    runs_ahead = False

    def __init__(
        self,
        kv_capacity_tokens: int,
        vocab_size: int,
        never: frozenset[int] = frozenset(),
        max_step_tokens: int = 4096,
        block_size: int = 16,
        step_time: StepTime | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.block_size = block_size
        self.kv_capacity_tokens = kv_capacity_tokens // block_size * block_size
        self.max_step_tokens = max_step_tokens
        self.vocab_size = vocab_size
        self._tokens = [token for token in range(vocab_size) if token not in never]
        self._step_time = step_time or StepTime()
        self._sleep = sleep

    def launch(self, batch: Sequence[Row]) -> Step:
        self._sleep(self._step_time.seconds(batch))
        return Finished(StepResult([self._draw(row) if row.samples else None for row in batch]))

    def _draw(self, row: Row) -> int:
        position = row.start + len(row.token_ids)
        tokens = self._tokens
        if row.matcher is not None:
            tokens = np.flatnonzero(allowed_tokens(row, self.vocab_size)).tolist()
        return tokens[hash((row.token_ids[-1], position)) % len(tokens)]
