# SPDX-License-Identifier: Apache-2.0
"""GGUF file to safetensors folder, once, so that serving never parses GGUF.

Reading a GGUF file takes half a minute of Python even for a small model; the folder loads in a
second. Weights are de-quantised to bfloat16. The folder appears whole or not at all.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from headway_server.load_error import ModelLoadError

NEEDED = ("gguf", "accelerate")


def convert(source: Path, target: Path, progress: Callable[[str], None]) -> None:
    """Writes weights, config, tokenizer, chat template and generation config to `target`.

    Raises ModelLoadError when `source` cannot be read or `target` exists.
    """
    if not source.is_file():
        raise ModelLoadError(f"GGUF file {source} does not exist")
    if target.exists():
        raise ModelLoadError(f"{target} exists already; remove it or name another folder")
    missing = [package for package in NEEDED if find_spec(package) is None]
    if missing:
        raise ModelLoadError(
            f"converting GGUF needs more packages: pip install {' '.join(missing)}"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        write_folder(source, work, progress)
        work.chmod(0o755)
        os.replace(work, target)
    except (ValueError, KeyError, RuntimeError) as error:
        raise ModelLoadError(f"{source} cannot be converted: {error}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    progress(f"wrote {target}")


def write_folder(source: Path, folder: Path, progress: Callable[[str], None]) -> None:
    progress("importing torch and transformers")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    progress(f"reading the tokenizer of {source.name}")
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    tokenizer.save_pretrained(folder)
    progress(f"reading the weights of {source.name}")
    model = AutoModelForCausalLM.from_pretrained(
        source.parent,
        gguf_file=source.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    progress("writing safetensors")
    model.save_pretrained(folder)
    for file in folder.iterdir():
        file.chmod(0o644)
