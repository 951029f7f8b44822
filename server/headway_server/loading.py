# SPDX-License-Identifier: Apache-2.0
"""From the flags to a model that can be served: weights, tokenizer, envelope. Runs on a thread.

Imports neither torch nor transformers unless a model is to be loaded, so that the simulated
runner starts in a moment.
"""

import logging
from collections.abc import Callable

from headway_server.filler_codec import FILLER_VOCABULARY, filler_codec, not_filler
from headway_server.load_error import ModelLoadError
from headway_server.model_folder import locate
from headway_server.options import ServeOptions, StartError
from headway_server.runner.simulated import SimulatedRunner, StepTime
from headway_server.service import LoadedModel
from headway_server.settings import Envelope
from headway_server.text_codec import load_codec

SIMULATED_KV_TOKENS = 131_072
SIMULATED_CONTEXT_TOKENS = 8192

log = logging.getLogger(__name__)

Progress = Callable[[str], None]


def load(options: ServeOptions, progress: Progress) -> LoadedModel:
    """Raises StartError."""
    if options.simulated:
        return _load_simulated(options, options.simulated)
    try:
        return _load_model(options, progress)
    except (StartError, ModelLoadError) as error:
        raise StartError(str(error)) from error
    except Exception as error:
        log.exception("loading failed")
        reason = str(error).partition("\n")[0] or "no reason given"
        raise StartError(
            f"model {options.model} cannot be loaded: {type(error).__name__}: {reason}"
        ) from error


def envelope_of(
    options: ServeOptions, context_tokens: int, kv_capacity_tokens: int, prefill_tokens: int
) -> Envelope:
    """Raises StartError where the flags, the model and the memory do not fit together."""
    check_context(options, context_tokens)
    total = options.max_total_tokens or min(context_tokens, kv_capacity_tokens)
    if total > kv_capacity_tokens:
        raise StartError(
            f"the KV cache holds {kv_capacity_tokens} tokens, fewer than --max-total-tokens "
            f"{total}; lower that (engine.maxTotalTokens) or give the server more memory"
        )
    longest_input = options.max_input_tokens or total - 1
    if longest_input >= total:
        raise StartError(
            f"--max-input-tokens {longest_input} must be below --max-total-tokens {total}"
        )
    return Envelope(kv_capacity_tokens, longest_input, total, prefill_tokens)


def check_context(options: ServeOptions, context_tokens: int) -> None:
    asked = options.max_total_tokens
    if asked and asked > context_tokens:
        raise StartError(
            f"--max-total-tokens {asked} is above the context of model {options.model}, "
            f"{context_tokens} tokens; lower it (engine.maxTotalTokens)"
        )


def _load_simulated(options: ServeOptions, step_time: StepTime) -> LoadedModel:
    capacity = options.kv_cache_capacity_tokens or SIMULATED_KV_TOKENS
    context = max(options.max_total_tokens or SIMULATED_CONTEXT_TOKENS, 2)
    runner = SimulatedRunner(capacity, FILLER_VOCABULARY, never=not_filler(), step_time=step_time)
    envelope = envelope_of(options, context, runner.kv_capacity_tokens, runner.max_step_tokens)
    return LoadedModel(runner, filler_codec(), envelope, options.prefix_caching)


def _load_model(options: ServeOptions, progress: Progress) -> LoadedModel:
    folder = locate(options.model, options.revision, progress)
    check_context(options, folder.context_length)
    from headway_server.runner.torch_runner import load_torch_runner

    runner = load_torch_runner(
        folder,
        device=options.device,
        dtype=options.dtype,
        quantization=options.quantization.capitalize(),
        kv_cache_dtype=options.kv_cache_dtype.capitalize(),
        kv_capacity_tokens=options.kv_cache_capacity_tokens,
        gpu_memory_utilization_percent=options.gpu_memory_utilization_percent,
        progress=progress,
    )
    codec = load_codec(folder.path, folder.eos_token_ids, runner.vocab_size)
    envelope = envelope_of(
        options, folder.context_length, runner.kv_capacity_tokens, runner.max_step_tokens
    )
    return LoadedModel(runner, codec, envelope, options.prefix_caching)
