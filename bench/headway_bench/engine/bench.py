# SPDX-License-Identifier: Apache-2.0
"""The measurements in their order: the cheap and the critical first, the peers with the engine.

Must not be imported before the number of threads is in the environment: it loads torch.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict
from functools import cached_property
from typing import Any

import torch

from headway_bench.engine import figures
from headway_bench.engine.contender import HeadwayEngine
from headway_bench.engine.figures import Measured
from headway_bench.engine.linear_layers import LinearLayers, linear_shapes, seconds_by_dtype
from headway_bench.engine.llama_cpp_peer import QUANTISATIONS, LlamaCpp
from headway_bench.engine.matmul_share import measure_matmul_share
from headway_bench.engine.mixed_latency import measure_mixed_latency
from headway_bench.engine.options import INT8, EngineOptions
from headway_bench.engine.prefix_latency import measure_prefix_latency
from headway_bench.engine.prompts import prompt_writer
from headway_bench.engine.repetitions import Say, rounded
from headway_bench.engine.requests import mixed_requests
from headway_bench.engine.scheduling_cost import measure_scheduling
from headway_bench.engine.teacher_forcing import measure_teacher_forcing
from headway_bench.engine.throughput import Rival, Throughput
from headway_bench.engine.transformers_peers import (
    StaticGenerate,
    TransformersContinuousBatching,
)
from headway_bench.engine.under_test import load_runner, matmul_limit, runner_dtype
from headway_server.model_folder import ModelFolder
from headway_server.runner.protocol import Runner

LLAMA_CPP_INT8 = "Q8_0"
KV_MARGIN_TOKENS = 1024


class EngineBench:
    """One run. `settings` is complete once `measure` has ended."""

    def __init__(self, folder: ModelFolder, options: EngineOptions, say: Say) -> None:
        torch.set_num_threads(options.threads)
        self._folder = folder
        self._options = options
        self._say = say
        self._sizes = options.sizes.fitted(folder.context_length)
        self._dtype = runner_dtype(folder, options.device, options.dtype)
        self._shapes = linear_shapes(folder.path)
        self._write = prompt_writer(folder.path, folder.vocab_size, options.seed)
        self._requests = {
            batch: mixed_requests(
                batch,
                self._sizes.prompt_tokens,
                self._sizes.output_tokens,
                self._write,
                options.seed,
            )
            for batch in options.batches
        }
        self.settings: dict[str, Any] = {
            "device": options.device,
            "dtype": self._dtype,
            "quantization": options.quantization,
            "threads": torch.get_num_threads(),
            "seed": options.seed,
            "quick": options.quick,
            "sizes": asdict(self._sizes),
            "figures": list(options.figures),
        }

    @cached_property
    def _runner(self) -> Runner:
        """Loaded when the first figure needs it."""
        return self._load(self._options.quantization, self._kv_tokens())

    def _load(self, quantization: str, kv_tokens: int) -> Runner:
        options = self._options
        return load_runner(
            self._folder, options.device, options.dtype, quantization, kv_tokens, self._say
        )

    def measure(self) -> Iterator[Measured]:
        """Figures as they come, so that a run that is broken off has some."""
        options, repeats = self._options, self._sizes.repeats
        if options.wants(figures.SCHEDULER_MS):
            yield measure_scheduling(self._sizes, options.seed, repeats, self._say)
        if options.wants(figures.MATMUL_SHARE):
            yield self._matmul_share()
        if options.wants(figures.TTFT_PREFIX):
            yield measure_prefix_latency(self._runner, self._sizes, self._write, repeats, self._say)
        if options.wants(figures.TTFT_MIXED):
            yield measure_mixed_latency(
                self._runner,
                self._sizes,
                options.batch_prefill_tokens,
                self._write,
                options.seed,
                repeats,
                self._say,
            )
        yield from self._throughput()

    def _throughput(self) -> Iterator[Measured]:
        with ExitStack() as open_models:
            rivals = list(self._rivals(open_models))
            batches = {rival.batch for rival in rivals}
            if self._options.wants(figures.ARGMAX_SHARE, figures.LOGIT_GAP):
                batches.add(self._sizes.requests)
            if self._options.wants(figures.OUTPUT_TOKENS):
                batches.update(self._options.batches)
            if not batches:
                return
            throughput = Throughput(
                HeadwayEngine(self._runner),
                rivals,
                {batch: self._requests[batch] for batch in batches},
                self._sizes.repeats,
                self._say,
            )
            measured = throughput.measure()
            yield from (figure for figure in measured if self._options.wants(figure.name))
        if self._options.wants(figures.ARGMAX_SHARE, figures.LOGIT_GAP):
            self._say("holding the engine's tokens against float32 logits")
            checked = self._sizes.requests
            yield from measure_teacher_forcing(
                self._folder.path,
                self._options.device,
                self._requests[checked],
                throughput.answers[checked],
            )

    def _matmul_share(self) -> Measured:
        limit = matmul_limit(self._runner)
        kernels = "the runner's own"
        if limit is None:
            dtype = self._torch_dtype
            limit = LinearLayers(self._shapes, getattr(torch, dtype), self._options.device).seconds
            kernels = f"torch linear, {dtype}"
        return measure_matmul_share(
            self._runner,
            limit,
            kernels,
            self._sizes,
            self._write,
            self._sizes.repeats,
            self._say,
        )

    def _rivals(self, open_models: ExitStack) -> Iterator[Rival]:
        options, requests = self._options, self._sizes.requests
        path, device = self._folder.path, options.device
        if options.wants(figures.VS_TRANSFORMERS_CB, figures.VS_STATIC):
            dtype = self._torch_dtype
        if options.wants(figures.VS_TRANSFORMERS_CB):
            peer = TransformersContinuousBatching(path, dtype, device)
            yield Rival(figures.VS_TRANSFORMERS_CB, requests, peer)
        if options.wants(figures.VS_STATIC):
            yield Rival(figures.VS_STATIC, requests, StaticGenerate(path, dtype, device))
        if options.gguf and options.wants(figures.VS_LLAMA_CPP_B32):
            best = max(
                (self._llama(quantisation, open_models) for quantisation in QUANTISATIONS),
                key=self._first_try,
            )
            yield Rival(figures.VS_LLAMA_CPP_B32, requests, best)
        if options.gguf and options.wants(figures.VS_LLAMA_CPP_B1):
            runner = self._load(INT8, KV_MARGIN_TOKENS)
            int8 = HeadwayEngine(runner, f"headway {INT8}")
            q8_0 = self._llama(LLAMA_CPP_INT8, open_models)
            yield Rival(figures.VS_LLAMA_CPP_B1, 1, q8_0, int8)

    def _llama(self, quantisation: str, open_models: ExitStack) -> LlamaCpp:
        assert self._options.gguf  # noqa: S101 - EngineOptions refuses the peer without it
        peer = LlamaCpp(self._options.gguf, quantisation, self._options.threads)
        return open_models.enter_context(closing(peer))

    def _first_try(self, peer: LlamaCpp) -> float:
        figure = peer.serve(self._requests[self._sizes.requests]).tokens_per_second
        self._say(f"{peer.name}: {figure:.4g} output tok/s on its first try")
        return figure

    @cached_property
    def _torch_dtype(self) -> str:
        """Of what torch computes beside the engine. On CUDA the engine's own format; on a CPU the
        faster one, since torch may have to emulate the one that suits the engine's kernels."""
        if self._options.device == "cuda":
            return self._dtype
        rows, device = self._sizes.decode_rows, self._options.device
        seconds = seconds_by_dtype(self._shapes, rows, device)
        dtype = min(seconds, key=lambda name: seconds[name])
        self.settings["torchLinearSeconds"] = {name: rounded(s) for name, s in seconds.items()}
        self._say(f"torch and the peers compute in {dtype}, the faster format of this processor")
        self.settings["peerDtype"] = dtype
        return dtype

    def _kv_tokens(self) -> int:
        """Room for whichever measurement needs most, with whole blocks for every request."""
        sizes = self._sizes
        throughput = [
            sum(request.tokens + 16 for request in requests) for requests in self._requests.values()
        ]
        decode = sizes.decode_rows * (sizes.decode_prompt + sizes.decode_steps + 16)
        mixed = sizes.long_requests * (sizes.long_prompt + 16)
        return max(*throughput, decode, mixed) + KV_MARGIN_TOKENS
