# SPDX-License-Identifier: Apache-2.0
"""What changes logits before a token is drawn: bias, penalties, bans, grammars, in that order.

Works on lines that were copied for it; only rows that ask for a rule get here.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway_server.runner.masks import Mask
from headway_server.runner.protocol import Row

TALLIES_KEPT = 512


def has_rules(row: Row) -> bool:
    sampling = row.sampling
    return bool(
        row.matcher is not None or row.banned or sampling.logit_bias or sampling.uses_history
    )


@dataclass(slots=True)
class Tally:
    """The tokens of one request so far: `prompt` each once, the answer's with their counts."""

    prompt: NDArray[np.int64]
    counts: dict[int, int] = field(default_factory=dict)
    seen: int = 0

    def follow(self, answer: Sequence[int]) -> None:
        for token in answer[self.seen :]:
            self.counts[token] = self.counts.get(token, 0) + 1
        self.seen = len(answer)


class Tallies:
    """Remembers the requests it saw last, so that a step costs their new tokens only."""

    def __init__(self) -> None:
        self._by_request: OrderedDict[str, Tally] = OrderedDict()

    def of(self, row: Row) -> Tally:
        prompt, answer = row.history or ((), ())
        tally = self._by_request.pop(row.request_id, None)
        if tally is None or tally.seen > len(answer):
            tally = Tally(np.unique(np.asarray(prompt, np.int64)))
        tally.follow(answer)
        self._by_request[row.request_id] = tally
        if len(self._by_request) > TALLIES_KEPT:
            self._by_request.popitem(last=False)
        return tally


def apply_rules(
    lines: Tensor, rows: Sequence[Row], masks: Sequence[Mask | None], tallies: Tallies
) -> None:
    """Changes `lines` [R, vocabulary], one a row, in place."""
    add_biases(lines, rows)
    penalise(lines, rows, tallies)
    forbid_banned(lines, rows)
    apply_masks(lines, masks)


class Spots:
    """Places in some lines, each with a number, gathered to be dealt with at once."""

    def __init__(self, lines: Tensor) -> None:
        self._flat = lines.view(-1)
        self._width = lines.shape[1]
        self._places: list[NDArray[np.int64]] = []
        self._numbers: list[NDArray[np.float32]] = []

    def add(self, line: int, tokens: NDArray[np.int64], numbers: Any = 0.0) -> None:
        self._places.append(tokens + line * self._width)
        self._numbers.append(np.broadcast_to(np.asarray(numbers, np.float32), tokens.shape))

    def change(self, rule: Callable[[Tensor, Tensor], Tensor]) -> None:
        """Each place takes what the rule makes of its logit and number. A place may come twice
        if the rule then gives the same."""
        if not self._places:
            return
        device = self._flat.device
        places = torch.from_numpy(np.concatenate(self._places)).to(device)
        numbers = torch.from_numpy(np.concatenate(self._numbers)).to(device)
        self._flat[places] = rule(self._flat[places], numbers)


def add_biases(lines: Tensor, rows: Sequence[Row]) -> None:
    spots = Spots(lines)
    for index, row in enumerate(rows):
        biases = dict(row.sampling.logit_bias)
        if biases:
            spots.add(index, tokens_of(biases), list(biases.values()))
    spots.change(lambda logits, bias: logits + bias)


def penalise(lines: Tensor, rows: Sequence[Row], tallies: Tallies) -> None:
    """Repetition divides logits above 0 and multiplies those below; presence subtracts once,
    frequency for each time that a token came in the answer."""
    repeated, answered = Spots(lines), Spots(lines)
    for index, row in enumerate(rows):
        sampling = row.sampling
        if not sampling.uses_history:
            continue
        tally = tallies.of(row)
        answer = tokens_of(tally.counts)
        if sampling.repetition_penalty != 1:
            known = np.concatenate([tally.prompt, answer])
            repeated.add(index, known, sampling.repetition_penalty)
        if sampling.presence_penalty or sampling.frequency_penalty:
            counts = np.fromiter(tally.counts.values(), np.float64, len(answer))
            amounts = sampling.presence_penalty + sampling.frequency_penalty * counts
            answered.add(index, answer, amounts)
    repeated.change(lambda logits, by: torch.where(logits > 0, logits / by, logits * by))
    answered.change(lambda logits, amounts: logits - amounts)


def forbid_banned(lines: Tensor, rows: Sequence[Row]) -> None:
    """Of the rows without a grammar: the masks of the others leave these tokens out already."""
    spots = Spots(lines)
    for index, row in enumerate(rows):
        if row.matcher is None and row.banned:
            spots.add(index, tokens_of(row.banned))
    spots.change(lambda logits, _: torch.full_like(logits, -torch.inf))


def apply_masks(lines: Tensor, masks: Sequence[Mask | None]) -> None:
    spots = Spots(lines)
    allowing = []
    for index, mask in enumerate(masks):
        if mask is not None and not mask.allows:
            spots.add(index, mask.tokens)
        elif mask is not None:
            allowing.append((index, mask))
    spots.change(lambda logits, _: torch.full_like(logits, -torch.inf))
    for index, mask in allowing:
        tokens = torch.from_numpy(mask.tokens).to(lines.device)
        kept = lines[index, tokens]
        lines[index] = -torch.inf
        lines[index, tokens] = kept


def tokens_of(tokens: Collection[int]) -> NDArray[np.int64]:
    return np.fromiter(tokens, np.int64, len(tokens))
