# SPDX-License-Identifier: Apache-2.0
"""From what `--model` says to a folder that can be loaded, or one sentence why it cannot.

Only safetensors weights are accepted: other formats may run code when they are opened. Must not
import torch, so that a wrong model is refused before seconds are spent on that.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway_server.load_error import ModelLoadError

Progress = Callable[[str], None]

INDEX = "model.safetensors.index.json"
UNSAFE = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """`context_length` in tokens; `eos_token_ids` end an answer; `config` and `generation` are the
    contents of config.json and generation_config.json, the latter empty if there is none."""

    path: Path
    config: Mapping[str, Any]
    generation: Mapping[str, Any]
    context_length: int
    vocab_size: int
    eos_token_ids: frozenset[int]


def locate(model: str, revision: str, progress: Progress) -> ModelFolder:
    """`model` is a folder, or `organisation/name` on the hub, of which `revision` is fetched."""
    path = Path(model).expanduser()
    if path.is_dir():
        return read_folder(path)
    if path.is_absolute() or model.startswith(("./", "../", "~")) or model.count("/") != 1:
        raise ModelLoadError(f"model folder {model} does not exist: check --model and the mount")
    from headway_server.model_hub import download

    return read_folder(download(model, revision, progress))


def read_folder(path: Path) -> ModelFolder:
    """Raises ModelLoadError if the folder is not a complete safetensors model."""
    if not (path / "config.json").is_file():
        raise ModelLoadError(
            f"model folder {path} has no config.json: it must hold a model in Hugging Face format"
        )
    config = read_json(path / "config.json")
    check_weights(path)
    has_generation = (path / "generation_config.json").is_file()
    generation = read_json(path / "generation_config.json") if has_generation else {}
    text = config.get("text_config", config)
    return ModelFolder(
        path=path,
        config=config,
        generation=generation,
        context_length=positive(text, "max_position_embeddings", path),
        vocab_size=positive(text, "vocab_size", path),
        eos_token_ids=token_ids(generation.get("eos_token_id", text.get("eos_token_id"))),
    )


def check_weights(path: Path) -> None:
    if (path / INDEX).is_file():
        shards = set(read_json(path / INDEX).get("weight_map", {}).values())
        if missing := sorted(shard for shard in shards if not (path / shard).is_file()):
            raise ModelLoadError(
                f"model folder {path} lacks {len(missing)} of {len(shards)} weight files, "
                f"{missing[0]} for one: copy or download it again"
            )
        return
    if (path / "model.safetensors").is_file():
        return
    if unsafe := sorted(file.name for pattern in UNSAFE for file in path.glob(pattern)):
        raise ModelLoadError(
            f"model folder {path} has its weights only as {unsafe[0]}, a format that can run code "
            "when it is opened: convert them to safetensors"
        )
    raise ModelLoadError(f"model folder {path} has no weights: it needs model.safetensors")


def read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except ValueError as error:
        raise ModelLoadError(f"{file} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelLoadError(f"{file} must hold a JSON object")
    return content


def positive(config: Mapping[str, Any], key: str, path: Path) -> int:
    value = config.get(key)
    if not isinstance(value, int) or value < 1:
        raise ModelLoadError(f"{path}/config.json does not say {key}: this model cannot be served")
    return value


def token_ids(value: int | list[int] | None) -> frozenset[int]:
    if value is None:
        return frozenset()
    return frozenset([value] if isinstance(value, int) else value)
