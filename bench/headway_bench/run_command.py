# SPDX-License-Identifier: Apache-2.0
"""`headway-bench run`: load against an OpenAI endpoint, measured at the client, written as JSON."""

import argparse
import asyncio
import json
import platform
import sys
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx

from headway_bench.load import LoadResult, LoadSettings, run_closed_loop
from headway_bench.summary import Objective, summarise
from headway_bench.timing import RequestTiming
from headway_bench.values import positive

EXIT_SLO_MISSED = 3


def add_run(commands: Any) -> None:
    run = commands.add_parser(
        "run",
        help="closed loop of a fixed number of clients on an OpenAI endpoint",
        description="Exit codes: 0 done, 1 the endpoint did not answer, 2 usage, 3 SLO missed.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    run.set_defaults(execute=execute)
    run.add_argument("--url", required=True, help="base URL of the server, without /v1")
    run.add_argument("--model", help="model name (default: the first that /v1/models lists)")
    run.add_argument("--workload", help="workload of the pool, sent as x-workload")
    run.add_argument("--clients", type=positive, default=8, help="requests under way at once")
    run.add_argument("--duration", type=float, default=60.0, help="seconds to keep sending")
    run.add_argument("--requests", type=positive, help="stop after this many requests")
    run.add_argument("--prompt-words", type=positive, default=40, help="words in a prompt")
    run.add_argument("--output-tokens", type=positive, default=48, help="tokens of an answer")
    run.add_argument(
        "--objective",
        type=objective,
        action="append",
        default=[],
        metavar="METRIC:PERCENTILE:MS",
        help="objective to judge, e.g. TTFT:95:800 (repeatable)",
    )
    run.add_argument("--seed", type=int, default=0, help="seed of the prompts")
    run.add_argument("--request-timeout", type=float, default=120.0, help="seconds for a request")
    run.add_argument("--json", type=Path, help="also write the report to this file")
    run.add_argument("--quiet", action="store_true", help="no progress lines")


def execute(options: argparse.Namespace) -> int:
    settings = LoadSettings(
        url=options.url.rstrip("/"),
        clients=options.clients,
        seconds=options.duration,
        requests=options.requests,
        prompt_words=options.prompt_words,
        output_tokens=options.output_tokens,
        model=options.model,
        workload=options.workload,
        seed=options.seed,
        request_timeout_seconds=options.request_timeout,
    )
    progress = Progress(quiet=options.quiet)
    try:
        result = asyncio.run(run_closed_loop(settings, progress.finished))
    except httpx.HTTPError as fault:
        print(f"headway-bench: {settings.url} did not answer: {fault}", file=sys.stderr)
        return 1
    outcome = report(settings, result, options.objective)
    text = json.dumps(outcome, indent=2)
    if options.json:
        options.json.write_text(text + "\n")
    print(text)
    objectives = outcome["results"]["objectives"]
    missed = [o for o in objectives if (o["attainment"] or 0) * 100 < o["percentile"]]
    return EXIT_SLO_MISSED if missed else 0


def report(
    settings: LoadSettings, result: LoadResult, objectives: list[Objective]
) -> dict[str, Any]:
    return {
        "schemaVersion": 1,
        "headway": version("headway"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "model": result.model,
        "settings": asdict(settings),
        "results": summarise(result.timings, result.seconds, objectives),
    }


class Progress:
    """One line for every tenth request on standard error; nothing that a pipe could not take."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._done = 0
        self._failed = 0

    def finished(self, timing: RequestTiming) -> None:
        self._done += 1
        self._failed += timing.error is not None
        if not self._quiet and self._done % 10 == 0:
            print(f"{self._done} requests, {self._failed} failed", file=sys.stderr, flush=True)


def objective(text: str) -> Objective:
    try:
        return Objective.parse(text)
    except ValueError as fault:
        raise argparse.ArgumentTypeError(str(fault)) from None
