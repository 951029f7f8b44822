# SPDX-License-Identifier: Apache-2.0
"""What changes logits before a token is drawn: bias, penalties, bans, grammars, in that order.

Works on lines that were copied for it; only rows that ask for a rule get here. A grammar goes
before a ban: where a ban would leave it nothing, the ban is lifted.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway_server.runner.protocol import Row

TALLIES_KEPT = 512

filling = ThreadPoolExecutor(1, "headway-masks")


def has_rules(row: Row) -> bool:
    sampling = row.sampling
    return bool(
        row.matcher is not None or row.banned or sampling.logit_bias or sampling.uses_history
    )


class MaskFill:
    """The grammar masks of some rows, filled on a thread of their own from the moment this is
    made. `take` waits for them: by index of the row, True where a token may come next."""

    def __init__(self, rows: Sequence[Row], vocab_size: int) -> None:
        indices = [index for index, row in enumerate(rows) if row.matcher is not None]
        self._filled: Future[dict[int, NDArray[np.bool_]]] | None = None
        if indices:
            self._filled = filling.submit(fill_masks, rows, indices, vocab_size)

    def take(self) -> dict[int, NDArray[np.bool_]]:
        return self._filled.result() if self._filled is not None else {}


def fill_masks(
    rows: Sequence[Row], indices: Sequence[int], vocab_size: int
) -> dict[int, NDArray[np.bool_]]:
    masks = {}
    for index in indices:
        words = np.zeros(-(-vocab_size // 32), np.int32)
        row = rows[index]
        if row.matcher is not None:
            row.matcher.fill(words)
        masks[index] = without_banned(unpacked(words, vocab_size), row.banned)
    return masks


def unpacked(words: NDArray[np.int32], vocab_size: int) -> NDArray[np.bool_]:
    bits = np.unpackbits(words.astype("<i4", copy=False).view(np.uint8), bitorder="little")
    return bits[:vocab_size].view(np.bool_)


def without_banned(allowed: NDArray[np.bool_], banned: frozenset[int]) -> NDArray[np.bool_]:
    rest = allowed.copy() if banned else allowed
    rest[list(banned)] = False
    return rest if rest.any() else allowed


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
    lines: Tensor,
    rows: Sequence[Row],
    masks: Sequence[NDArray[np.bool_] | None],
    tallies: Tallies,
) -> None:
    """Changes `lines` [R, vocabulary], one a row, in place."""
    add_biases(lines, rows)
    penalise(lines, rows, tallies)
    forbid_banned(lines, rows)
    apply_masks(lines, masks)


def add_biases(lines: Tensor, rows: Sequence[Row]) -> None:
    biases = [(i, token, bias) for i, row in enumerate(rows) for token, bias in bias_of(row)]
    if biases:
        line, token, bias = zip(*biases, strict=True)
        lines.index_put_(at(lines, line, token), values(lines, bias), accumulate=True)


def bias_of(row: Row) -> tuple[tuple[int, float], ...]:
    return row.sampling.logit_bias


def forbid_banned(lines: Tensor, rows: Sequence[Row]) -> None:
    """Of the rows without a grammar: the masks of the others leave these tokens out already."""
    banned = [(i, t) for i, row in enumerate(rows) if row.matcher is None for t in row.banned]
    if banned:
        lines[at(lines, *zip(*banned, strict=True))] = -torch.inf


def penalise(lines: Tensor, rows: Sequence[Row], tallies: Tallies) -> None:
    """Repetition divides logits above 0 and multiplies those below; presence subtracts once,
    frequency for each time that a token came in the answer."""
    for index, row in enumerate(rows):
        sampling = row.sampling
        if not sampling.uses_history:
            continue
        tally = tallies.of(row)
        line = lines[index]
        answer = np.fromiter(tally.counts, np.int64, len(tally.counts))
        if sampling.repetition_penalty != 1:
            known = torch.from_numpy(np.union1d(tally.prompt, answer)).to(lines.device)
            penalty, chosen = sampling.repetition_penalty, line[known]
            line[known] = torch.where(chosen > 0, chosen / penalty, chosen * penalty)
        if len(answer) and (sampling.presence_penalty or sampling.frequency_penalty):
            counts = np.fromiter(tally.counts.values(), np.float32, len(answer))
            amount = sampling.presence_penalty + sampling.frequency_penalty * counts
            line[torch.from_numpy(answer).to(lines.device)] -= values(lines, amount)


def apply_masks(lines: Tensor, masks: Sequence[NDArray[np.bool_] | None]) -> None:
    masked = [(index, mask) for index, mask in enumerate(masks) if mask is not None]
    if not masked:
        return
    if lines.device.type == "cpu":
        for index, mask in masked:
            line = lines[index].numpy()
            np.copyto(line, np.where(mask, line, np.float32(-np.inf)))
        return
    indices, allowed = zip(*masked, strict=True)
    where = torch.tensor(indices, device=lines.device)
    forbidden = torch.from_numpy(~np.stack(allowed)).to(lines.device)
    lines[where] = lines[where].masked_fill(forbidden, -torch.inf)


def at(like: Tensor, line: Iterable[int], token: Iterable[int]) -> tuple[Tensor, Tensor]:
    device = like.device
    return torch.tensor(list(line), device=device), torch.tensor(list(token), device=device)


def values(like: Tensor, numbers: Iterable[float]) -> Tensor:
    return torch.tensor(np.asarray(tuple(numbers)), dtype=torch.float32, device=like.device)
