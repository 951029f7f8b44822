# SPDX-License-Identifier: Apache-2.0
"""`observe` against a real Prometheus whose past was written for the purpose, second by second."""

import asyncio
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from headway_autotune.observation import Defect, Observation, Window
from headway_autotune.observe import observe
from headway_autotune.pool import TunedPool
from headway_operator.prometheus import Prometheus
from tests.autotune.given import REVISION, TTFT, autotune, pool, workload
from tests.autotune.tape import (
    SCRAPE,
    Scrapes,
    Series,
    Tape,
    after,
    before,
    constant,
    rising,
    series,
    thinned,
)

BEGIN = 1_700_000_000
WARMUP = 30
WINDOW = Window(BEGIN + 101, BEGIN + 161)
SCRAPES = Scrapes(BEGIN, BEGIN + 160)
MIDDLE = (WINDOW.start + WINDOW.end) / 2
LAST = BEGIN + 160
READY_SECONDS = 30.0

CAPACITY = series("headway_kv_tokens", "a", state="capacity")
BUDGET = series("headway_knob_value", "a", workload="chat", knob="maxBatchTotalTokens")
INFO = series("headway_runtime_config_info", "a", revision=REVISION)
MET = series("headway_slo_requests_total", "a", workload="chat", objective=TTFT.label, met="true")


def replica(pod: str, scale: float = 1.0) -> dict[Series, Tape]:
    """17 requests in 10 s within the objective and 3 without, held back 20 times a second."""

    def slo(met: str) -> Series:
        labels = {"workload": "chat", "objective": TTFT.label, "met": met}
        return series("headway_slo_requests_total", pod, **labels)

    def blocked(reason: str) -> Series:
        return series("headway_admission_blocked_total", pod, workload="chat", reason=reason)

    def bucket(le: str) -> Series:
        return series("headway_ttft_seconds_bucket", pod, workload="chat", le=le)

    def requests(outcome: str) -> Series:
        return series("headway_requests_total", pod, workload="chat", outcome=outcome)

    chat = {"workload": "chat"}
    return {
        slo("true"): rising(BEGIN, 1.7 * scale, first=1000),
        slo("false"): rising(BEGIN, 0.3 * scale, first=7),
        requests("stop"): rising(BEGIN, 2.0 * scale),
        requests("abort"): rising(BEGIN, 5.0 * scale),
        blocked("budget"): rising(BEGIN, 20),
        blocked("gate"): after(MIDDLE, rising(MIDDLE, 0.1)),
        bucket("0.5"): rising(BEGIN, 100),
        bucket("1.0"): rising(BEGIN, 170),
        bucket("2.0"): rising(BEGIN, 200),
        bucket("+Inf"): rising(BEGIN, 200),
        series("headway_reserved_tokens", pod, **chat): lambda t: 4000.0 if t < MIDDLE else 6000.0,
        series("headway_waiting_requests", pod, **chat): constant(3 * scale),
        series("headway_kv_tokens", pod, state="capacity"): constant(100_000),
        series("headway_kv_tokens", pod, state="reserved"): constant(20_000 * scale),
        series("headway_knob_value", pod, **chat, knob="maxBatchTotalTokens"): constant(8192),
        series("headway_knob_value", pod, **chat, knob="maxWaitingTokens"): constant(20),
        series("headway_runtime_config_info", pod, revision=REVISION): constant(1),
    }


def changed(tapes: Mapping[Series, Tape], key: Series, tape: Tape | None) -> dict[Series, Tape]:
    """One series replaced, or gone."""
    rest = {series: old for series, old in tapes.items() if series != key}
    return rest if tape is None else {**rest, key: tape}


ONE = replica("a")
POOLS: dict[str, Mapping[Series, Tape]] = {
    "healthy": ONE,
    "two": {**replica("a"), **replica("b", scale=2.0)},
    "silent": {key: before(LAST - 15, tape) for key, tape in ONE.items()},
    "old": {key: before(BEGIN + 90, tape) for key, tape in ONE.items()},
    "sparse": {key: thinned(2, tape) for key, tape in ONE.items()},
    "late": {**ONE, **{key: after(MIDDLE, tape) for key, tape in replica("b").items()}},
    "young": {key: after(WINDOW.start - 20, tape) for key, tape in ONE.items()},
    "leaving": {**ONE, **{key: before(MIDDLE, tape) for key, tape in replica("b").items()}},
    "loading": {**ONE, series("headway_kv_tokens", "b", state="capacity"): constant(0)},
    "restarted": changed(ONE, MET, lambda t: (t - BEGIN) // 1 if t < MIDDLE else t - MIDDLE),
    "unborn": changed(ONE, MET, after(MIDDLE, rising(MIDDLE, 1.7))),
    "uncounted": changed(ONE, MET, None),
    "nan": changed(ONE, BUDGET, constant(float("nan"))),
    "changing": changed(ONE, INFO, before(MIDDLE, constant(1)))
    | {series("headway_runtime_config_info", "a", revision="newer"): after(MIDDLE, constant(1))},
    "unloaded": changed(ONE, CAPACITY, constant(0)),
}


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of a Prometheus that remembers POOLS."""
    if not (shutil.which("prometheus") and shutil.which("promtool")):
        pytest.fail("prometheus is missing: install it with `apt-get install prometheus`")
    home: Path = tmp_path_factory.mktemp("prometheus")
    (home / "past.txt").write_text(SCRAPES.text(POOLS))
    (home / "prometheus.yml").write_text("scrape_configs: []\n")
    import_past = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "past.txt", "data"]
    subprocess.run(import_past, cwd=home, check=True, capture_output=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [
        "prometheus",
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=data",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address={address}",
    ]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=home, stdout=log, stderr=log)
    try:
        _await_ready(process, f"http://{address}/-/ready", home / "log")
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait()


def _await_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(url).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    pytest.fail(f"Prometheus did not become ready:\n{log.read_text()[-2000:]}")


def seen(url: str, tuned: TunedPool, window: Window = WINDOW) -> Observation:
    async def ask() -> Observation:
        async with httpx.AsyncClient() as http:
            return await observe(Prometheus(url, http), tuned, window, SCRAPE)

    return asyncio.run(ask())


def named(name: str, **changes: object) -> TunedPool:
    return pool(name=name, autotune=autotune(warmup_seconds=WARMUP), **changes)


def test_requests_are_counted_whole(prometheus: str) -> None:
    """Between the samples at 100 s and at 160 s, not extrapolated to the window's edges."""
    observation = seen(prometheus, named("healthy"))
    assert observation.gap is None
    [chat] = observation.workloads
    [first] = chat.objectives
    assert (first.met, first.missed) == (1272 - 1170, 55 - 37)
    assert chat.completed == 120
    assert chat.blocked == {"budget": 1200, "gate": 2}


def test_gauges_are_means_and_peaks_of_the_window(prometheus: str) -> None:
    observation = seen(prometheus, named("healthy"))
    [chat] = observation.workloads
    assert observation.kv_usage_percent == pytest.approx(20.0)
    assert (chat.budget, chat.reserved_peak, chat.waiting) == (8192, 6000, 3.0)
    assert 4000 < chat.reserved_mean < 6000


def test_the_observed_latency_is_the_objectives_percentile_in_milliseconds(prometheus: str) -> None:
    [chat] = seen(prometheus, named("healthy")).workloads
    # 95 % of 200 is 190: two thirds into the bucket from 1 s (170) to 2 s (200).
    assert chat.objectives[0].observed_milliseconds == pytest.approx(1667, abs=2)


def test_replicas_are_added_up_and_the_fullest_one_speaks_for_the_tokens(prometheus: str) -> None:
    observation = seen(prometheus, named("two"))
    [chat] = observation.workloads
    assert observation.replicas == 2
    assert chat.objectives[0].total == 120 + 240
    assert chat.waiting == 9.0
    assert observation.kv_usage_percent == pytest.approx(40.0)


@pytest.mark.parametrize(
    ("name", "defect", "says"),
    [
        ("nowhere", Defect.MISSING, "is it scraped?"),
        ("old", Defect.MISSING, "no sample of this pool in the window"),
        ("silent", Defect.STALE, "too old"),
        ("unloaded", Defect.MISSING, "loaded"),
        ("sparse", Defect.PARTIAL, "6 times in the window, 12 are expected"),
        ("late", Defect.REPLICAS_CHANGED, "Replica b"),
        ("leaving", Defect.REPLICAS_CHANGED, "Replica b"),
        ("young", Defect.REPLICAS_CHANGED, "Replica a"),
        ("restarted", Defect.RESET, "replica a"),
        ("unborn", Defect.MISSING, 'met="true"'),
        ("uncounted", Defect.MISSING, 'met="true"'),
        ("nan", Defect.MISSING, "headway_knob_value"),
        ("changing", Defect.REVISION_MISMATCH, "newer"),
    ],
)
def test_a_torn_window_is_a_gap_and_never_a_smaller_number(
    prometheus: str, name: str, defect: Defect, says: str
) -> None:
    observation = seen(prometheus, named(name))
    assert observation.gap is not None
    assert (observation.gap.defect, observation.workloads) == (defect, ())
    assert says in observation.gap.message


def test_a_replica_that_is_still_loading_is_not_one_that_went_missing(prometheus: str) -> None:
    assert seen(prometheus, named("loading")).replicas == 1


def test_a_workload_that_the_server_does_not_know_yet_is_missing(prometheus: str) -> None:
    both = pool(workload(), workload("new"), name="healthy", autotune=named("healthy").autotune)
    observation = seen(prometheus, both)
    assert observation.gap is not None
    assert 'workload="new"' in observation.gap.message


REFUSAL = {"status": "error", "errorType": "execution", "error": "too many samples"}


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (httpx.Response(503, text="<html>upstream is down</html>"), "503 without JSON"),
        (httpx.Response(422, json=REFUSAL), "too many samples"),
        (httpx.Response(200, json={"status": "success"}), "unknown form"),
        (httpx.ConnectError("connection refused"), "connection refused"),
        (httpx.ReadTimeout("timed out"), "timed out"),
    ],
)
async def test_a_provider_that_does_not_answer_is_a_gap(
    answer: httpx.Response | httpx.HTTPError, says: str
) -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        if isinstance(answer, httpx.HTTPError):
            raise answer
        return answer

    async with httpx.AsyncClient(transport=httpx.MockTransport(handle)) as http:
        provider = Prometheus("http://prometheus", http)
        observation = await observe(provider, pool(), WINDOW, SCRAPE)
    assert observation.gap is not None
    assert observation.gap.defect is Defect.PROVIDER_UNREACHABLE
    assert says in observation.gap.message
