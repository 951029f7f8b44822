# SPDX-License-Identifier: Apache-2.0
"""What a model answers by transformers' own code in float32: what a faster path is held against."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from headway_server.runner.attention import ShapeProbe
from headway_server.runner.weights import Model, forward

LENGTHS = (1, 7, 40)


def trial_sequences(vocabulary: int, positions: int) -> list[list[int]]:
    """Token ids that lie all over the vocabulary; any will do."""
    lengths = [min(length, positions) for length in LENGTHS]
    return [
        [(7919 * (position + 1) * length + position) % vocabulary for position in range(length)]
        for length in lengths
    ]


def reference_logits(model: Model, sequences: Sequence[Sequence[int]]) -> tuple[ShapeProbe, Tensor]:
    """Logits [sequences, vocabulary], after the last token of each."""
    probe = ShapeProbe()
    lines = []
    with in_float32(model):
        for sequence in sequences:
            ids, positions = torch.tensor([sequence]), torch.arange(len(sequence))[None]
            lines.append(forward(model, ids, positions, positions[0, -1:], probe)[0, 0])
    return probe, torch.stack(lines)


@contextmanager
def in_float32(model: Model) -> Iterator[None]:
    """Every part is widened for as long as it computes, so that memory holds one at a time."""
    stored = model.dtype
    body = model.model
    parts = [body.embed_tokens, *body.layers, body.norm, model.lm_head]

    def widen(part: Any, _: Any) -> None:
        part.float()

    def narrow(part: Any, *_: Any) -> None:
        part.to(stored)

    hooks = []
    for part in parts:
        hooks.append(part.register_forward_pre_hook(widen))
        hooks.append(part.register_forward_hook(narrow))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def relative_difference(logits: Tensor, reference: Tensor) -> float:
    """Of the root mean squares."""
    return float((logits - reference).norm() / reference.norm().clamp(min=1e-9))
