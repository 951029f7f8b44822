# SPDX-License-Identifier: Apache-2.0
"""The life of a server process: HTTP at once, the model when it is loaded, a drain at the end.

A start that fails ends with one sentence as the last line of stderr, because that line is what a
pool's condition shows. SIGTERM cuts no answer off unless the drain takes too long.
"""

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TypeVar

import uvicorn
import uvloop
from prometheus_client import CollectorRegistry, start_http_server

from headway_server.api.app import create_app
from headway_server.exposition import new_registry
from headway_server.loading import load
from headway_server.metrics import RequestMetrics
from headway_server.options import ServeOptions, StartError
from headway_server.runtime_watch import RuntimeWatch
from headway_server.service import Limits, Service

KEEP_ALIVE_SECONDS = 65
FLUSH_SECONDS = 10
LAST_STEP_SECONDS = 10
TROUBLE_CHECK_SECONDS = 1.0

log = logging.getLogger(__name__)

Result = TypeVar("Result")


def serve(options: ServeOptions) -> int:
    """Runs until the process is told to stop, and returns its exit code."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(options))
    except StartError as failure:
        return _fail(str(failure))
    except Exception as error:
        log.exception("stopped by an unexpected error")
        return _fail(f"stopped by an unexpected {type(error).__name__}; the log line above has it")
    return 0


async def _run(options: ServeOptions) -> None:
    limits = Limits(stall_seconds=options.stall_timeout_seconds)
    requests = RequestMetrics(options.served_name)
    service = Service(options.served_name, requests, time.monotonic, limits)
    watch = RuntimeWatch(options.runtime_file)
    registry = new_registry(service, requests, lambda: watch.rejection, options.tgi_metrics)
    stop = _stop_signal(service)
    with (
        _listen(options.host, options.port) as listener,
        _metrics_endpoint(options.host, options.metrics_port, registry) as metrics_port,
    ):
        http = _HttpServer(_uvicorn_config(service))
        ports = {"port": listener.getsockname()[1], "metrics_port": metrics_port}
        log.info("listening", extra=ports)
        serving = asyncio.create_task(http.serve(sockets=[listener]))
        model = asyncio.create_task(_serve_model(options, service, watch))
        told = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((serving, model, told), return_when=asyncio.FIRST_COMPLETED)
            if model.done():
                model.result()
            log.info("draining")
            await service.drain(options.drain_timeout_seconds)
        finally:
            model.cancel()
            told.cancel()
            http.should_exit = True
            await asyncio.wait((serving, model))
            await asyncio.to_thread(service.stop, LAST_STEP_SECONDS)


async def _serve_model(options: ServeOptions, service: Service, watch: RuntimeWatch) -> None:
    """Until cancelled. Raises StartError."""
    started = time.monotonic()
    loaded = await _on_a_thread(lambda: load(options, log.info))
    service.start(loaded, watch.first(loaded.envelope))
    log.info(
        "ready",
        extra={
            "model": options.served_name,
            "seconds": round(time.monotonic() - started, 1),
            "kv_capacity_tokens": loaded.envelope.kv_capacity_tokens,
            "revision": service.settings.revision,
        },
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(watch.run(loaded.envelope, service.apply))
        tasks.create_task(report_trouble(service))


async def report_trouble(service: Service) -> None:
    """One log line, with the engine's inside, whenever the process turns sick. Until cancelled."""
    reported = False
    while True:
        trouble = service.trouble()
        if trouble and not reported:
            log.error("unhealthy: %s", trouble, extra={"engine": service.report()})
        reported = trouble is not None
        await asyncio.sleep(TROUBLE_CHECK_SECONDS)


async def _on_a_thread(work: Callable[[], Result]) -> Result:
    """Like `asyncio.to_thread`, but nobody waits for the thread when the process ends."""
    done: Future[Result] = Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001  it is raised where the result is awaited
            done.set_exception(error)

    threading.Thread(target=run, name="headway-load", daemon=True).start()
    return await asyncio.wrap_future(done)


class _HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers: it is told when to stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _uvicorn_config(service: Service) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(service),
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=FLUSH_SECONDS,
    )


def _stop_signal(service: Service) -> asyncio.Event:
    """Set by the first SIGTERM or SIGINT; a second one cuts the open answers off."""
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            service.cut_off()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    return stop


@contextlib.contextmanager
def _listen(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise StartError(f"cannot listen on {host} port {port}: {error.strerror}") from error
    with listener:
        yield listener


@contextlib.contextmanager
def _metrics_endpoint(host: str, port: int, registry: CollectorRegistry) -> Iterator[int]:
    """On threads of its own, so that a busy event loop does not hide its own numbers."""
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        reason = f"cannot serve metrics on {host} port {port}: {error.strerror}"
        raise StartError(reason) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _fail(sentence: str) -> int:
    print(f"headway-server: {sentence}", file=sys.stderr, flush=True)
    return 1
