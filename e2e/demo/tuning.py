# SPDX-License-Identifier: Apache-2.0
"""Load on a workload whose budget is wrong, until the tuner's change is in force and has worked."""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from demo import pool
from demo.kubectl import Tools, await_condition
from headway_api.names import HTTP_PORT
from headway_bench.load import LoadSettings, run_closed_loop
from headway_bench.summary import Objective, attainment, percentile
from headway_bench.timing import RequestTiming

CLIENTS = 4
PROMPT_WORDS = 40
OUTPUT_TOKENS = 32
LONGEST_LOAD_SECONDS = 600
TUNER_SECONDS = 420
AFTER_SECONDS = 45


@dataclass(frozen=True)
class Attainment:
    """What clients saw in one phase of the load."""

    requests: int
    share: float | None
    ttft_p95_milliseconds: int | None


@dataclass(frozen=True)
class TuningReport:
    changes: list[dict[str, Any]]
    before: Attainment
    after: Attainment


class _Load:
    """Closed-loop clients in a thread of their own, stopped by the main thread."""

    def __init__(self, url: str, workload: str) -> None:
        self.timings: list[RequestTiming] = []
        self._settings = LoadSettings(
            url=url,
            clients=CLIENTS,
            seconds=LONGEST_LOAD_SECONDS,
            requests=None,
            prompt_words=PROMPT_WORDS,
            output_tokens=OUTPUT_TOKENS,
            model=None,
            workload=workload,
            seed=0,
            request_timeout_seconds=120,
        )
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[Any] | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "_Load":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())
        self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        self._task = self._loop.create_task(
            run_closed_loop(self._settings, on_finish=self.timings.append)
        )
        self._loop.run_until_complete(asyncio.wait({self._task}))


def watch_the_tuner(
    tools: Tools,
    name: str,
    workload: str,
    tell: Callable[[str], None] = lambda words: None,
) -> TuningReport:
    """Load `workload` until the tuner raised its budget and clients feel it."""
    seen = pool.read(tools, name)
    objective = declared_objective(seen, workload)
    start = len(pool.tuner_changes(seen))
    with (
        tools.port_forward(f"service/{name}", HTTP_PORT) as url,
        _Load(url, workload) as load,
    ):
        changed = await_condition(
            f"the tuner's change of {workload} in force",
            lambda: _change_in_force(tools, name, workload, start, tell),
            seconds=TUNER_SECONDS,
        )
        in_force = time.monotonic()
        tell(f"in force: {changed[-1]['from']} -> {changed[-1]['to']} tokens")
        await_condition(
            "requests sent after the change",
            lambda: time.monotonic() - in_force > AFTER_SECONDS or None,
            seconds=AFTER_SECONDS * 2,
        )
        timings = tuple(load.timings)
    return TuningReport(
        changes=pool.tuner_changes(pool.read(tools, name))[start:],
        before=_seen([t for t in timings if t.finished < in_force], objective),
        after=_seen([t for t in timings if t.intended > in_force], objective),
    )


def declared_objective(seen: dict[str, Any], workload: str) -> Objective:
    """The first objective that the pool itself declares for the workload."""
    [declared] = [entry for entry in seen["spec"]["workloads"] if entry["name"] == workload]
    first = declared["slo"]["objectives"][0]
    return Objective(first["metric"], first["percentile"], first["thresholdMilliseconds"])


def _change_in_force(
    tools: Tools, name: str, workload: str, start: int, tell: Callable[[str], None]
) -> list[dict[str, Any]] | None:
    seen = pool.read(tools, name)
    changes = [c for c in pool.tuner_changes(seen)[start:] if c["workloadName"] == workload]
    tuning = pool.condition(seen, "Tuning")
    if tuning is not None:
        tell(f"{tuning['reason']}: {tuning['message']}")
    synced = pool.condition(seen, "RuntimeConfigSynced")
    in_force = (
        changes
        and pool.effective_budget(seen, workload) == changes[-1]["to"]
        and synced is not None
        and synced["status"] == "True"
    )
    return changes if in_force else None


def _seen(timings: list[RequestTiming], objective: Objective) -> Attainment:
    ttft = percentile([t.ttft for t in timings if t.ttft is not None and not t.error], 95)
    return Attainment(
        requests=len(timings),
        share=attainment(timings, objective),
        ttft_p95_milliseconds=None if ttft is None else round(ttft * 1000),
    )
