# SPDX-License-Identifier: Apache-2.0
"""Draws tokens by temperature, top-k, top-p and min-p, as if each line were sorted.

The tokens of a line, the most probable first and of equals the lowest id, are cut and one is taken
where the cumulative probability passes the row's number in [0, 1). That number comes from a
counter-based generator keyed by (seed, position), so neighbours do not matter. On the CPU a line is
sorted only as far as its number and cuts need; elsewhere all lines are sorted at once.
"""

from collections.abc import Iterator, Sequence
from math import log

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway_server.engine.messages import Sampling
from headway_server.runner.protocol import Row

# Lines that are sorted at once: bounds the memory of the buffers.
SLICE_ROWS = 64
# Tokens that are at least this probable, beside the most probable one, are sorted first.
FLOOR = 2.0**-14
COLDEST = 1e-6

Line = NDArray[np.float32]


def draw(logits: Tensor, lines: Sequence[int], rows: Sequence[Row]) -> Tensor:
    """Tokens [R] for the `lines` of `logits` [S, vocabulary] that belong to `rows`."""
    if logits.device.type == "cpu":
        table = logits.float().numpy()
        scratch = np.empty(table.shape[1], np.float32)
        drawn = zip(lines, rows, strict=True)
        return torch.tensor(
            [draw_line(table[i], row.sampling, uniform_of(row), scratch) for i, row in drawn]
        )
    slices = range(0, len(lines), SLICE_ROWS)
    return torch.cat(
        [
            draw_together(
                logits[list(lines[start : start + SLICE_ROWS])].float(),
                rows[start : start + SLICE_ROWS],
            )
            for start in slices
        ]
    )


def draw_line(line: Line, sampling: Sampling, uniform: float, scratch: Line) -> int:
    """A line that holds no finite maximum is the model's fault: its argmax is as good as any.
    `scratch` is as long as the line."""
    peak = line.max()
    if not np.isfinite(peak):
        return int(line.argmax())
    for ordered, mass in selections(line, peak, sampling, scratch):
        weights = weigh(ordered, peak, sampling, np.empty(len(ordered), np.float32))
        rank = rank_of(weights, mass, sampling, uniform)
        if rank is not None:
            return token_at(line, ordered, rank)
    raise AssertionError("a whole line always settles the draw")


def selections(
    line: Line, peak: np.float32, sampling: Sampling, scratch: Line
) -> Iterator[tuple[Line, float | None]]:
    """Heads of the descending line, with the weight of all of it; None: nothing is left out."""
    size = len(line)
    if 0 < sampling.top_k < size:
        cut = size - sampling.top_k
        yield descending(np.partition(line, cut)[cut:]), None
        return
    floor = max(FLOOR, sampling.min_p) / 2
    head = np.compress(line >= peak + np.float32(sampling.temperature * log(floor)), line)
    settled = sampling.min_p >= FLOOR and sampling.top_p >= 1
    mass = 0.0 if settled else float(weigh(line, peak, sampling, scratch).sum())
    yield descending(head), mass
    yield descending(line), None


def weigh(line: Line, peak: np.float32, sampling: Sampling, out: Line) -> Line:
    """Probabilities over that of the most probable token, in `out`; torch's exp is the faster."""
    np.subtract(line, peak, out=out)
    np.multiply(out, np.float32(1 / max(sampling.temperature, COLDEST)), out=out)
    torch.from_numpy(out).exp_()
    return out


def descending(line: Line) -> Line:
    ordered: Line = np.sort(line)[::-1]
    return ordered


def rank_of(weights: Line, mass: float | None, sampling: Sampling, uniform: float) -> int | None:
    """Place of the drawn token in the line; None if it may lie beyond the head that is there."""
    size = len(weights)
    cumulative = weights.cumsum(dtype=np.float64)
    whole = mass is None
    total = cumulative[-1] if mass is None else mass
    kept = size if whole else size + 1
    if sampling.top_p < 1:
        kept = min(kept, 1 + int(cumulative.searchsorted(sampling.top_p * total)))
    if sampling.min_p > 0 and (whole or sampling.min_p >= FLOOR):
        kept = min(kept, size - int(weights[::-1].searchsorted(np.float32(sampling.min_p))))
    if kept <= size:
        reach = uniform * cumulative[kept - 1]
        return min(int(cumulative[:kept].searchsorted(reach, "right")), kept - 1)
    uncut = sampling.top_p >= 1 and sampling.min_p == 0
    rank = int(cumulative.searchsorted(uniform * total, "right"))
    return rank if uncut and rank < size else None


def token_at(line: Line, ordered: Line, rank: int) -> int:
    value = ordered[rank]
    before = len(ordered) - int(ordered[::-1].searchsorted(value, "right"))
    return int(np.flatnonzero(line == value)[rank - before])


def draw_together(lines: Tensor, rows: Sequence[Row]) -> Tensor:
    """`lines` [R, vocabulary] in float32."""
    parameters = [row.sampling for row in rows]
    temperature = column([max(p.temperature, COLDEST) for p in parameters], lines).float()
    ordered, tokens = lines.sort(dim=-1, descending=True, stable=True)
    weights = ((ordered - ordered[:, :1]) * (1 / temperature)).exp()
    cumulative = keep(weights.double(), parameters).cumsum(dim=-1)
    threshold = column([uniform_of(row) for row in rows], lines) * cumulative[:, -1:]
    index = (cumulative <= threshold).sum(dim=-1, keepdim=True)
    last = (cumulative < cumulative[:, -1:]).sum(dim=-1, keepdim=True)
    return tokens.gather(1, torch.minimum(index, last).clamp(max=tokens.shape[1] - 1))[:, 0]


def keep(weights: Tensor, parameters: Sequence[Sampling]) -> Tensor:
    """Zeroes what top-k, then top-p, then min-p cut off. Lines are sorted and begin with 1; top-p
    keeps the smallest head whose share of what top-k left is at least p."""
    vocabulary = weights.shape[1]
    device = weights.device
    top_k = torch.tensor([p.top_k or vocabulary for p in parameters], device=device)[:, None]
    top_p = column([p.top_p for p in parameters], weights)
    min_p = column([p.min_p for p in parameters], weights).float()
    weights = weights * (torch.arange(vocabulary, device=device) < top_k)
    before = weights.cumsum(dim=-1) - weights
    inside = (before < top_p * weights.sum(dim=-1, keepdim=True)) | (top_p >= 1)
    return weights * inside * (weights >= min_p)


def column(numbers: list[float], like: Tensor) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64, device=like.device)[:, None]


def uniform_of(row: Row) -> float:
    """53 random bits from SplitMix64's finaliser over seed and position."""
    position = row.start + len(row.token_ids)
    bits = mix(mix(row.sampling.seed or 0) + position)
    return (bits >> 11) / (1 << 53)


def mix(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return value ^ (value >> 31)
