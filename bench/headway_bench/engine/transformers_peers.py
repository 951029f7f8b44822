# SPDX-License-Identifier: Apache-2.0
"""The two ways in which transformers serves many requests: continuous batching, and `generate`.

Same process, threads, prompts and lengths as the engine under test. Each gets the settings that
suit it best: the faster number format of the processor, and a cache cut to the requests.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig

from headway_bench.engine.contender import Served
from headway_bench.engine.reference_model import reference_model
from headway_bench.engine.requests import BenchRequest
from headway_bench.engine.under_test import BenchFailed

PAGE_TOKENS = 64
STEP_TOKENS = 512
STATIC_BATCH = 32
RESULT_SECONDS = 600.0
NO_END_TOKEN = -1


class TransformersContinuousBatching:
    """The cache holds exactly the requests: its attention masks every query against all of it, so
    a larger one would only be slower."""

    name = "transformers-cb"

    def __init__(self, folder: Path, dtype: str, device: str) -> None:
        self._model = reference_model(folder, dtype, device)
        self.settings = {
            "dtype": dtype,
            "attention": "sdpa",
            "pageTokens": PAGE_TOKENS,
            "stepTokens": STEP_TOKENS,
            "cache": "cut to the requests",
        }

    def serve(self, requests: Sequence[BenchRequest]) -> Served:
        generation = GenerationConfig(do_sample=False, eos_token_id=NO_END_TOKEN)
        with (
            torch.inference_mode(),
            self._model.continuous_batching_context_manager(
                generation_config=generation,
                continuous_batching_config=self._config(requests),
                block=True,
            ) as manager,
        ):
            started = time.perf_counter()
            ids = [
                manager.add_request(list(request.prompt), max_new_tokens=request.output_tokens)
                for request in requests
            ]
            answers = self._collect(manager, len(ids))
            seconds = time.perf_counter() - started
        return Served(seconds, [answers[request_id] for request_id in ids])

    def _config(self, requests: Sequence[BenchRequest]) -> ContinuousBatchingConfig:
        pages = sum(-(-request.tokens // PAGE_TOKENS) for request in requests)
        return ContinuousBatchingConfig(
            page_size=PAGE_TOKENS,
            num_blocks=pages + 1,
            max_batch_tokens=STEP_TOKENS,
            max_requests_per_batch=len(requests),
            allow_block_sharing=False,
            safety_margin=0.0,
            auto_switch_to_flash=self._model.device.type == "cuda",
        )

    def _collect(self, manager: Any, count: int) -> dict[str, list[int]]:
        answers: dict[str, list[int]] = {}
        while len(answers) < count:
            result = manager.get_result(timeout=RESULT_SECONDS)
            if result is None or result.error is not None:
                why = "no result" if result is None else result.error
                raise BenchFailed(f"{self.name} did not finish a request: {why}")
            answers[result.request_id] = list(result.generated_tokens)
        return answers


class StaticGenerate:
    """Batches of 32 in the order of arrival, padded on the left; each runs as long as its longest
    answer, and only the tokens that were asked for count."""

    name = "static"

    def __init__(self, folder: Path, dtype: str, device: str) -> None:
        self._model = reference_model(folder, dtype, device)
        self.settings = {"dtype": dtype, "attention": "sdpa", "batch": STATIC_BATCH}

    def serve(self, requests: Sequence[BenchRequest]) -> Served:
        started = time.perf_counter()
        answers = [
            answer
            for first in range(0, len(requests), STATIC_BATCH)
            for answer in self._generate(requests[first : first + STATIC_BATCH])
        ]
        return Served(time.perf_counter() - started, answers)

    def _generate(self, requests: Sequence[BenchRequest]) -> list[list[int]]:
        width = max(len(request.prompt) for request in requests)
        steps = max(request.output_tokens for request in requests)
        pads = [width - len(request.prompt) for request in requests]
        ids = [[0] * pad + list(r.prompt) for pad, r in zip(pads, requests, strict=True)]
        mask = [[0] * pad + [1] * (width - pad) for pad in pads]
        with torch.inference_mode():
            output = self._model.generate(
                input_ids=torch.tensor(ids, device=self._model.device),
                attention_mask=torch.tensor(mask, device=self._model.device),
                generation_config=GenerationConfig(
                    do_sample=False,
                    max_new_tokens=steps,
                    pad_token_id=0,
                ),
            )
        made = output[:, width:].tolist()
        return [answer[: r.output_tokens] for answer, r in zip(made, requests, strict=True)]
