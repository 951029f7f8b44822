# SPDX-License-Identifier: Apache-2.0
"""`headway-autotune run`: the tuner as a process. It parses, connects and waits; no decisions."""

import argparse
import asyncio
import logging
import signal
import sys
import time
from collections.abc import Sequence

import httpx
from kubernetes.aio.config import ConfigException
from prometheus_client import REGISTRY, start_http_server

from headway_api.names import TUNER_MANAGER
from headway_autotune.logs import configure
from headway_autotune.loop import Tuner, TunerConfig
from headway_autotune.metrics import TunerMetrics
from headway_operator.kube import KubeApi
from headway_operator.prometheus import Prometheus, parse_provider

log = logging.getLogger(__name__)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="headway-autotune",
        description="Moves token budgets of InferencePools until their latency objectives hold.",
    )
    run = top.add_subparsers(dest="command", required=True).add_parser(
        "run", help="evaluate every pool of the watched namespaces, for ever"
    )
    run.add_argument(
        "--metrics-provider",
        action="append",
        default=[],
        type=_provider,
        metavar="NAME=URL",
        help="Prometheus that pools name in spec.metrics.providerName; repeatable",
    )
    run.add_argument(
        "--watch-namespace",
        action="append",
        default=[],
        metavar="NS",
        help="tune pools of this namespace only; repeatable, none means all",
    )
    run.add_argument(
        "--metrics-port", type=int, default=8080, help="port of its own /metrics (%(default)s)"
    )
    run.add_argument(
        "--log-format", choices=("json", "text"), default="json", help="log lines (%(default)s)"
    )
    run.add_argument(
        "--tick-seconds",
        type=_positive,
        default=5.0,
        help="pause between looks for ended windows (%(default)s)",
    )
    run.add_argument(
        "--scrape-interval-seconds",
        type=_positive,
        default=5.0,
        help="how often the providers scrape (%(default)s); older than three intervals is stale",
    )
    return top


def main(arguments: Sequence[str] | None = None) -> None:
    flags = parser().parse_args(arguments)
    configure(flags.log_format)
    try:
        asyncio.run(_run(flags))
    except ConfigException as error:
        sys.exit(f"headway-autotune: no cluster to connect to, set KUBECONFIG: {error}")


async def _run(flags: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server, thread = start_http_server(flags.metrics_port)
    kube = await KubeApi.connect(user_agent=TUNER_MANAGER)
    try:
        async with httpx.AsyncClient() as http:
            tuner = Tuner(
                kube,
                {name: Prometheus(url, http) for name, url in flags.metrics_provider},
                TunerMetrics(REGISTRY, time.time),
                TunerConfig(
                    namespaces=flags.watch_namespace,
                    tick_seconds=flags.tick_seconds,
                    scrape_interval_seconds=flags.scrape_interval_seconds,
                ),
                time.time,
            )
            log.info("tuning", extra={"fields": {"providers": dict(flags.metrics_provider)}})
            await tuner.run(stop)
    finally:
        await kube.close()
        server.shutdown()
        thread.join()


def _provider(text: str) -> tuple[str, str]:
    try:
        return parse_provider(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _positive(text: str) -> float:
    value = float(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above zero")
    return value


if __name__ == "__main__":
    main()
