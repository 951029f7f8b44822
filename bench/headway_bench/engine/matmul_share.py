# SPDX-License-Identifier: Apache-2.0
"""How much of a decode step is the model's own matrix products: the limit no engine can pass.

A step counts from one output to the next, with everything the engine does in between; only steps
in which every row got a token and no prompt was computed are counted.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median

from headway_bench.engine.figures import MATMUL_SHARE, Measured
from headway_bench.engine.repetitions import Say, interleaved, ratio_details, rounded
from headway_bench.engine.requests import BenchRequest, WritePrompt
from headway_bench.engine.sizes import Sizes
from headway_bench.engine.under_test import BenchFailed, EngineUnderTest
from headway_server.runner.protocol import Runner

LIMIT_ROUNDS = 5


def measure_matmul_share(
    runner: Runner,
    limit: Callable[[int], float],
    kernels: str,
    sizes: Sizes,
    write: WritePrompt,
    repeats: int,
    say: Say,
) -> Measured:
    """`limit` gives the seconds of the products alone for a number of rows."""
    rows = sizes.decode_rows

    def step() -> float:
        requests = [
            BenchRequest(write(sizes.decode_prompt), sizes.decode_steps) for _ in range(rows)
        ]
        with EngineUnderTest(runner) as engine:
            engine.serve(requests)
        return decode_seconds(engine.steps, rows)

    series = interleaved(
        {
            "matmul limit": lambda: min(limit(rows) for _ in range(LIMIT_ROUNDS)),
            "decode step": step,
        },
        repeats,
        say,
        "s",
        higher_is_better=False,
    )
    share = series["matmul limit"].over(series["decode step"])
    details = ratio_details(
        series["matmul limit"], series["decode step"], rows=rows, kernels=kernels, unit="s"
    )
    return Measured(MATMUL_SHARE, rounded(share.median), details)


def decode_seconds(steps: Sequence[tuple[float, int]], rows: int) -> float:
    """Median time between two outputs in a row that both had a token for each of `rows`."""
    gaps = [after - before for (before, had), (after, has) in pairwise(steps) if had == has == rows]
    if not gaps:
        raise BenchFailed(f"no two decode steps in a row had all {rows} rows")
    return median(gaps)
