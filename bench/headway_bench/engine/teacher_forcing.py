# SPDX-License-Identifier: Apache-2.0
"""Whether the engine's greedy tokens are the model's: each is held against float32 logits.

The reference reads the engine's own answer token by token, so one token that differs does not
make all later ones differ, as it would if two answers were compared.
"""

from collections.abc import Sequence
from pathlib import Path

import torch

from headway_bench.engine.figures import ARGMAX_SHARE, LOGIT_GAP, Measured
from headway_bench.engine.reference_model import reference_model
from headway_bench.engine.repetitions import rounded
from headway_bench.engine.requests import BenchRequest


def measure_teacher_forcing(
    folder: Path, device: str, requests: Sequence[BenchRequest], answers: Sequence[Sequence[int]]
) -> list[Measured]:
    model = reference_model(folder, "float32", device)
    gaps = torch.cat(
        [
            logit_gaps(model, request.prompt, answer)
            for request, answer in zip(requests, answers, strict=True)
        ]
    )
    equal = int((gaps == 0).sum())
    details = {"tokens": len(gaps), "equal": equal, "requests": len(requests)}
    return [
        Measured(ARGMAX_SHARE, rounded(equal / len(gaps)), details),
        Measured(LOGIT_GAP, rounded(float(gaps.max())), details),
    ]


def logit_gaps(
    model: torch.nn.Module, prompt: Sequence[int], answer: Sequence[int]
) -> torch.Tensor:
    """[len(answer)]: by how much the largest logit is above the chosen token's."""
    ids = torch.tensor([[*prompt, *answer[:-1]]], device=model.device)
    chosen = torch.tensor(list(answer), device=model.device)
    with torch.inference_mode():
        logits = model(input_ids=ids, use_cache=False, logits_to_keep=len(answer)).logits[0].float()
    taken = logits.gather(1, chosen[:, None])[:, 0]
    gaps: torch.Tensor = (logits.max(dim=-1).values - taken).cpu()
    return gaps
