# SPDX-License-Identifier: Apache-2.0
"""Loads a folder's weights into transformers' class for it, and tries the class out.

Whatever is wrong with a model is found here, before the server calls itself ready, and is said in
one sentence. Code from the folder is never run.
"""

from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from headway_server.load_error import ModelLoadError
from headway_server.model_folder import ModelFolder
from headway_server.runner.attention import ATTENTION_NAME, ShapeProbe, UnsupportedAttention
from headway_server.runner.kv_cache import LayerShape

Model = Any  # transformers builds its classes at run time; only `execute` and this module call one


def load_weights(folder: ModelFolder, dtype: torch.dtype, device: torch.device) -> Model:
    disable_progress_bar()
    if "quantization_config" in folder.config:
        raise ModelLoadError(
            f"model folder {folder.path} is quantised, which is not supported: use plain weights"
        )
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            folder.path,
            dtype=dtype,
            attn_implementation=ATTENTION_NAME,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except SafetensorError as error:
        raise ModelLoadError(
            f"the weights in {folder.path} are damaged ({error}): copy or download them again"
        ) from error
    except (ValueError, KeyError, OSError, RuntimeError, AttributeError) as error:
        raise unsupported(folder, first_line(error)) from error
    if missing := sorted(report["missing_keys"]):
        raise ModelLoadError(
            f"the weights in {folder.path} lack {len(missing)} tensors, {missing[0]} for one: "
            "copy or download them again"
        )
    try:
        return model.to(device).eval()
    except torch.OutOfMemoryError as error:
        raise ModelLoadError(
            f"model {folder.path} does not fit into the memory of {device}: use a larger device"
        ) from error


def try_out(model: Model, folder: ModelFolder, tokens: int) -> dict[int, LayerShape]:
    """One forward pass over `tokens` tokens; tells what each layer keeps of a token."""
    probe = ShapeProbe()
    ids = torch.zeros(1, tokens, dtype=torch.long, device=model.device)
    positions = torch.arange(tokens, device=model.device)[None]
    try:
        logits = forward(model, ids, positions, positions[0, -1:], probe)
    except torch.OutOfMemoryError as error:
        raise ModelLoadError(
            f"model {folder.path} fits into memory but a step of {tokens} tokens does not: "
            "use a device with more memory"
        ) from error
    except (UnsupportedAttention, TypeError, ValueError, RuntimeError, IndexError) as error:
        raise unsupported(folder, first_line(error)) from error
    layers = getattr(model.config.get_text_config(), "num_hidden_layers", len(probe.shapes))
    if len(probe.shapes) != layers or logits.shape[:2] != (1, 1):
        raise unsupported(folder, "not every layer is plain attention")
    return probe.shapes


def forward(
    model: Model,
    token_ids: torch.Tensor,
    position_ids: torch.Tensor,
    logits_at: torch.Tensor,
    step: Any,
) -> torch.Tensor:
    """Logits [1, len(logits_at), vocabulary]."""
    with torch.inference_mode():
        output = model(
            input_ids=token_ids,
            position_ids=position_ids,
            use_cache=False,
            logits_to_keep=logits_at,
            paged=step,
        )
    logits: torch.Tensor = output.logits
    return logits


def unsupported(folder: ModelFolder, why: str) -> ModelLoadError:
    architectures = ", ".join(folder.config.get("architectures") or ["unknown architecture"])
    return ModelLoadError(f"model {folder.path} ({architectures}) is not supported: {why}")


def first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
