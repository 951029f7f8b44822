# SPDX-License-Identifier: Apache-2.0
"""transformers' own model, unchanged: what the peers run, and the measure of right answers."""

from functools import lru_cache
from pathlib import Path
from typing import Any


@lru_cache(maxsize=2)
def reference_model(folder: Path, dtype: str, device: str) -> Any:
    """Loaded once for each number format. No code from the folder is run, no token is an end."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=getattr(torch, dtype),
        attn_implementation="sdpa",
        use_safetensors=True,
        local_files_only=True,
        trust_remote_code=False,
    )
    model.generation_config.eos_token_id = None
    return model.to(device).eval()
