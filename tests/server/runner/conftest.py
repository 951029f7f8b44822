# SPDX-License-Identifier: Apache-2.0
"""Tiny models with random weights, and a sequence that is played through a runner."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headway_server.engine.messages import Sampling
from headway_server.model_folder import read_folder
from headway_server.runner.protocol import Row

TINY = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 97,
    "max_position_embeddings": 256,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
}

MakeModel = Callable[..., Path]


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """Writes a folder with a random model of the type and the config values that are asked for."""

    def make(model_type: str = "llama", **values: Any) -> Path:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        torch.manual_seed(1)
        config = AutoConfig.for_model(model_type, **(TINY | values))
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.mul_(6)
        folder = tmp_path_factory.mktemp(model_type)
        model.save_pretrained(folder)
        return folder

    return make


@pytest.fixture(scope="session")
def tiny(make_model: MakeModel) -> Path:
    return make_model()


@pytest.fixture(scope="session")
def load() -> Callable[..., Any]:
    from headway_server.runner.torch_runner import load_torch_runner

    def load(path: Path, **values: Any) -> Any:
        defaults: dict[str, Any] = {
            "device": "cpu",
            "dtype": "float32",
            "kv_capacity_tokens": 1024,
            "gpu_memory_utilization_percent": 90,
            "progress": lambda line: None,
        }
        return load_torch_runner(read_folder(path), **(defaults | values))

    return load


@dataclass
class Script:
    """A sequence whose tokens are all given; rows of it are computed in any cut."""

    tokens: list[int]
    block_table: tuple[int, ...]
    sampling: Sampling = field(default_factory=lambda: Sampling(seed=1))
    done: int = 0

    def row(self, count: int) -> Row:
        start, self.done = self.done, self.done + count
        return Row(
            request_id=str(self.block_table),
            token_ids=tuple(self.tokens[start : self.done]),
            start=start,
            block_table=self.block_table,
            samples=True,
            sampling=self.sampling,
        )


@pytest.fixture
def script() -> type[Script]:
    return Script
