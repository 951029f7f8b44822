# SPDX-License-Identifier: Apache-2.0
"""From logits to tokens. A row's token depends on its logits, parameters, seed and position only.

Each row draws one number in [0, 1) from a counter-based generator keyed by (seed, position), and
takes the token at which the cumulative probability passes it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from headway_server.engine.messages import Sampling
from headway_server.runner.protocol import Row

# Rows that are sorted at once: bounds the memory of the sampling buffers.
SLICE_ROWS = 64


def sample(logits: Tensor, rows: Sequence[Row]) -> list[int]:
    """`logits` [S, vocabulary], one line a row."""
    tokens: list[int] = logits.argmax(dim=-1).tolist()
    drawn = [index for index, row in enumerate(rows) if row.sampling.temperature > 0]
    for start in range(0, len(drawn), SLICE_ROWS):
        indices = drawn[start : start + SLICE_ROWS]
        chosen = draw(logits[indices], [rows[index] for index in indices])
        for index, token in zip(indices, chosen, strict=True):
            tokens[index] = token
    return tokens


def draw(logits: Tensor, rows: Sequence[Row]) -> list[int]:
    parameters = [row.sampling for row in rows]
    temperature = column([p.temperature for p in parameters], logits)
    uniform = column([uniform_of(row) for row in rows], logits)
    ordered, tokens = (logits.double() / temperature).sort(dim=-1, descending=True, stable=True)
    cumulative = keep(ordered.softmax(dim=-1), parameters).cumsum(dim=-1)
    threshold = uniform * cumulative[:, -1:]
    index = (cumulative <= threshold).sum(dim=-1, keepdim=True)
    chosen: list[int] = tokens.gather(1, index.clamp(max=tokens.shape[1] - 1))[:, 0].tolist()
    return chosen


def keep(probabilities: Tensor, parameters: Sequence[Sampling]) -> Tensor:
    """Zeroes what top-k and then top-p cut off. Lines are sorted, the most probable token first;
    top-p keeps the smallest head whose share of what top-k left is at least p."""
    vocabulary = probabilities.shape[1]
    device = probabilities.device
    top_k = torch.tensor([p.top_k or vocabulary for p in parameters], device=device)[:, None]
    top_p = column([p.top_p for p in parameters], probabilities)
    probabilities = probabilities * (torch.arange(vocabulary, device=device) < top_k)
    before = probabilities.cumsum(dim=-1) - probabilities
    inside = (before < top_p * probabilities.sum(dim=-1, keepdim=True)) | (top_p >= 1)
    return probabilities * inside


def column(values: list[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, device=like.device)[:, None]


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
