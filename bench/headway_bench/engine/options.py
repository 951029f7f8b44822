# SPDX-License-Identifier: Apache-2.0
"""What a run of `headway-bench engine` was asked for; checked before any model is loaded."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headway_bench.engine.figures import (
    FIGURES,
    VS_LLAMA_CPP_B1,
    VS_LLAMA_CPP_B32,
    VS_STATIC,
    VS_TRANSFORMERS_CB,
)
from headway_bench.engine.sizes import Sizes

NO_QUANTIZATION, INT8 = "None", "Int8"
CONTINUOUS, STATIC, LLAMA_CPP, NO_PEER = "transformers-cb", "static", "llama.cpp", "none"
PEERS = (CONTINUOUS, STATIC, LLAMA_CPP, NO_PEER)
DEFAULT_PEERS = (CONTINUOUS, STATIC)
NEEDS_PEER = {
    VS_TRANSFORMERS_CB: CONTINUOUS,
    VS_STATIC: STATIC,
    VS_LLAMA_CPP_B32: LLAMA_CPP,
    VS_LLAMA_CPP_B1: LLAMA_CPP,
}


class BadOptions(ValueError):
    """Flags that do not go together; the message says which."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """`quantization` of the engine's weights: None or Int8.

    `batch_prefill_tokens`: the prefill budget of the long prompts beside chats."""

    model: Path
    device: str
    dtype: str
    quantization: str
    threads: int
    seed: int
    sizes: Sizes
    quick: bool
    peers: tuple[str, ...]
    only: tuple[str, ...]
    gguf: Path | None
    batch_prefill_tokens: int

    def __post_init__(self) -> None:
        for figure in self.only:
            peer = NEEDS_PEER.get(figure)
            if peer and peer not in self.peers:
                raise BadOptions(f"--only {figure} needs --peer {peer}")
        if LLAMA_CPP in self.peers and self.gguf is None:
            raise BadOptions("--peer llama.cpp needs --gguf: a GGUF file of the same model")

    def wants(self, *figures: str) -> bool:
        return any(figure in self.figures for figure in figures)

    @property
    def figures(self) -> Sequence[str]:
        """What can be measured with these peers and was not left out by `only`."""
        possible = [name for name in FIGURES if NEEDS_PEER.get(name) in (None, *self.peers)]
        return [name for name in possible if not self.only or name in self.only]

    @property
    def batches(self) -> tuple[int, ...]:
        """The batch sizes of the throughput, those of the ratios and of the check included."""
        ratios = {1} if self.wants(VS_LLAMA_CPP_B1) else set()
        return tuple(sorted({*self.sizes.batches, self.sizes.requests, *ratios}))
