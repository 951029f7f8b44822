# SPDX-License-Identifier: Apache-2.0
"""From logits to tokens and their logprobs.

A row's token depends on its logits, parameters, seed, history and position only, never on its
neighbours. A row pays for what it asks: a greedy one without rules is an argmax.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headway_server.engine.messages import TokenLogprob
from headway_server.runner.draw import SLICE_ROWS, draw
from headway_server.runner.logit_rules import Tallies, apply_rules, has_rules
from headway_server.runner.masks import MaskFill
from headway_server.runner.protocol import Row, StepResult


class Sampler:
    """`begin` before the forward pass, which hides the filling of masks; `draw` after it."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._tallies = Tallies()

    def begin(self, batch: Sequence[Row]) -> "Drawing":
        indices = [index for index, row in enumerate(batch) if row.samples]
        rows = [batch[index] for index in indices]
        return Drawing(rows, indices, len(batch), MaskFill(rows, self._vocab_size), self._tallies)


class Drawing:
    """One step's sampling. `logits` [S, vocabulary], one line a row that samples."""

    def __init__(
        self,
        rows: Sequence[Row],
        indices: Sequence[int],
        batch_size: int,
        masks: MaskFill,
        tallies: Tallies,
    ) -> None:
        self._rows = rows
        self._indices = indices
        self._batch_size = batch_size
        self._masks = masks
        self._tallies = tallies

    def draw(self, logits: Tensor) -> StepResult:
        with torch.inference_mode():
            return self.result(*self.choose(logits))

    def choose(self, logits: Tensor) -> tuple[Tensor, "list[Probed]"]:
        """Tokens [S] and what their logprobs are made of, where the logits are: nothing is brought
        back from a device yet."""
        tokens = argmax(logits)
        free = [i for i, row in enumerate(self._rows) if is_drawn(row) and not has_rules(row)]
        if free:
            tokens[free] = draw(logits, free, [self._rows[i] for i in free]).to(tokens.device)
        ruled = [i for i, row in enumerate(self._rows) if has_rules(row)]
        masks = self._masks.take()
        for start in range(0, len(ruled), SLICE_ROWS):
            lines = ruled[start : start + SLICE_ROWS]
            rows = [self._rows[i] for i in lines]
            changed = logits[lines].float()
            apply_rules(changed, rows, [masks.get(i) for i in lines], self._tallies)
            tokens[lines] = choose_each(changed, rows)
        return tokens, probe(logits, tokens, self._rows)

    def result(self, tokens: Tensor, probed: "list[Probed]") -> StepResult:
        """Brings both to the host."""
        drawn: list[int | None] = [None] * self._batch_size
        for index, token in zip(self._indices, tokens.tolist(), strict=True):
            drawn[index] = token
        logprobs: dict[int, TokenLogprob] = {}
        for part in probed:
            for line, logprob in part.logprobs(self._rows, drawn, self._indices):
                logprobs[self._indices[line]] = logprob
        return StepResult(drawn, logprobs)


def sample(logits: Tensor, rows: Sequence[Row]) -> StepResult:
    """One step by itself: `rows` all sample."""
    return Sampler(logits.shape[1]).begin(rows).draw(logits)


def is_drawn(row: Row) -> bool:
    return row.sampling.temperature > 0


def choose_each(lines: Tensor, rows: Sequence[Row]) -> Tensor:
    tokens = argmax(lines)
    drawn = [index for index, row in enumerate(rows) if is_drawn(row)]
    if drawn:
        tokens[drawn] = draw(lines, drawn, [rows[i] for i in drawn]).to(tokens.device)
    return tokens


def argmax(lines: Tensor) -> Tensor:
    """numpy's is many times faster than torch's on the CPU."""
    if lines.device.type == "cpu":
        return torch.from_numpy(np.argmax(lines.float().numpy(), axis=-1))
    return lines.argmax(dim=-1)


@dataclass(frozen=True, slots=True)
class Probed:
    """For some lines: logprob of the drawn token [L], and the most probable ones' [L, n]."""

    lines: Sequence[int]
    drawn: Tensor
    top: Tensor
    top_ids: Tensor

    def logprobs(
        self, rows: Sequence[Row], tokens: Sequence[int | None], indices: Sequence[int]
    ) -> "list[tuple[int, TokenLogprob]]":
        found = []
        parts = (self.drawn.tolist(), self.top_ids.tolist(), self.top.tolist())
        for line, drawn, ids, values in zip(self.lines, *parts, strict=True):
            count = rows[line].sampling.logprobs or 0
            token = tokens[indices[line]]
            if token is not None:
                top = tuple(zip(ids[:count], values[:count], strict=True))
                found.append((line, TokenLogprob(token, drawn, top)))
        return found


def probe(logits: Tensor, tokens: Tensor, rows: Sequence[Row]) -> list[Probed]:
    """The model's own probabilities: before bias, penalties, temperature and cuts."""
    asking = [index for index, row in enumerate(rows) if row.sampling.logprobs is not None]
    probed = []
    for start in range(0, len(asking), SLICE_ROWS):
        lines = asking[start : start + SLICE_ROWS]
        most = max(rows[line].sampling.logprobs or 0 for line in lines)
        values = logits[lines].float()
        mass = values.logsumexp(dim=-1, keepdim=True)
        top = values.topk(min(most, values.shape[1]), dim=-1)
        drawn = values.gather(1, tokens[lines][:, None]) - mass
        probed.append(Probed(lines, drawn[:, 0], top.values - mass, top.indices))
    return probed
