# SPDX-License-Identifier: Apache-2.0
"""`headway-bench engine`: the engine against its peers and its limits, on this machine.

The number of threads goes into the environment before torch is imported: its pool is sized then.
"""

import argparse
import json
import os
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headway_bench.engine.figures import FIGURES, Measured
from headway_bench.engine.machine import describe_machine, load_average
from headway_bench.engine.options import (
    DEFAULT_PEERS,
    INT8,
    NO_QUANTIZATION,
    PEERS,
    BadOptions,
    EngineOptions,
)
from headway_bench.engine.report import as_json, as_table
from headway_bench.engine.sizes import FULL, QUICK
from headway_bench.values import positive, positive_list

BATCH_PREFILL_TOKENS = 32


def add_engine(commands: Any) -> None:
    engine = commands.add_parser(
        "engine",
        help="the engine against its peers and its limits, on this machine",
        description="Serves the same requests with Headway's engine and with its peers, in turn, "
        "and measures what the engine's steps are made of. Progress on standard error, a table on "
        "standard output. Exit codes: 0 done, 1 cannot be measured, 2 usage.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    engine.set_defaults(execute=execute)
    engine.add_argument("--model", type=Path, required=True, help="folder with safetensors weights")
    engine.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to run")
    engine.add_argument(
        "--dtype",
        choices=("auto", "bfloat16", "float16", "float32"),
        default="auto",
        help="number format of the engine; auto is the server's choice",
    )
    engine.add_argument(
        "--quantization",
        choices=(NO_QUANTIZATION, INT8),
        default=NO_QUANTIZATION,
        help="of the engine's weights; ratio_vs_llama_cpp_b1 is always Int8 against Q8_0",
    )
    engine.add_argument(
        "--threads", type=positive, help="threads of every contender (default: all usable CPUs)"
    )
    engine.add_argument("--repeats", type=positive, help="repetitions, interleaved (default: 3)")
    engine.add_argument(
        "--batches", type=positive_list, help="batch sizes of the throughput (default: 1,8,32,64)"
    )
    engine.add_argument(
        "--peer",
        action="append",
        choices=PEERS,
        help="whom to run against, repeatable (default: both of transformers)",
    )
    engine.add_argument("--gguf", type=Path, help="GGUF file of the model, for --peer llama.cpp")
    engine.add_argument(
        "--only", nargs="+", choices=FIGURES, default=[], metavar="FIGURE",
        help=f"leave out all but these: {', '.join(FIGURES)}",
    )  # fmt: skip
    engine.add_argument(
        "--batch-prefill-tokens",
        type=positive,
        default=BATCH_PREFILL_TOKENS,
        help="maxBatchPrefillTokens of the long prompts that chats are measured beside",
    )
    engine.add_argument("--seed", type=int, default=0, help="seed of prompts, lengths and pauses")
    engine.add_argument("--json", type=Path, help="write figures, details and settings here")
    engine.add_argument("--plot", type=Path, help="draw the figures here (.svg or .png)")
    engine.add_argument("--quick", action="store_true", help="a small run: that it works, no more")


def execute(options: argparse.Namespace) -> int:
    if find_spec("torch") is None:
        return refuse("the engine is not installed here: pip install 'headway[server,bench]'", 1)
    from headway_server.load_error import ModelLoadError
    from headway_server.runner.host import usable_cpus

    try:
        chosen = engine_options(options, options.threads or usable_cpus())
    except BadOptions as fault:
        return refuse(str(fault), 2)
    os.environ["OMP_NUM_THREADS"] = str(chosen.threads)
    from headway_bench.engine.under_test import BenchFailed

    try:
        measured = measure(chosen, options.json)
        if options.plot:
            from headway_bench.engine.plot import draw_plot

            draw_plot(measured, options.plot)
    except (BenchFailed, ModelLoadError) as fault:
        return refuse(str(fault), 1)
    print(as_table(measured))
    return 0


def measure(options: EngineOptions, file: Path | None) -> list[Measured]:
    """The file is written anew after every figure, so that a run that breaks off is not lost."""
    from headway_bench.engine.bench import EngineBench
    from headway_server.model_folder import read_folder

    before = load_average()
    bench = EngineBench(read_folder(options.model), options, say)
    machine = describe_machine(options.device)
    measured = []
    for figure in bench.measure():
        say(f"{figure.name} = {figure.value:.4g}")
        measured.append(figure)
        if file:
            name = options.model.resolve().name
            report = as_json(name, bench.settings, machine, before, load_average(), measured)
            file.write_text(json.dumps(report, indent=2) + "\n")
    return measured


def engine_options(options: argparse.Namespace, threads: int) -> EngineOptions:
    sizes = QUICK if options.quick else FULL
    return EngineOptions(
        model=options.model.expanduser(),
        device=options.device,
        dtype=options.dtype,
        threads=threads,
        seed=options.seed,
        sizes=replace(
            sizes,
            repeats=options.repeats or sizes.repeats,
            batches=options.batches or sizes.batches,
        ),
        quantization=options.quantization,
        quick=options.quick,
        peers=tuple(options.peer or DEFAULT_PEERS),
        only=tuple(options.only),
        gguf=options.gguf,
        batch_prefill_tokens=options.batch_prefill_tokens,
    )


def say(line: str) -> None:
    print(f"headway-bench: {line}", file=sys.stderr, flush=True)


def refuse(sentence: str, code: int) -> int:
    print(f"headway-bench: {sentence}", file=sys.stderr)
    return code
