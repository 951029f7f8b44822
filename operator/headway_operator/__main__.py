# SPDX-License-Identifier: Apache-2.0
"""`headway-operator run`: flags in, kopf started, nothing else."""

import argparse
import logging
from collections.abc import Sequence

import kopf
from prometheus_client import CollectorRegistry, start_http_server

from headway_operator import handlers
from headway_operator.controller import Controller
from headway_operator.options import Options
from headway_operator.prometheus import parse_provider

LOG_FORMATS = {"json": kopf.LogFormat.JSON, "text": kopf.LogFormat.FULL}


def main(arguments: Sequence[str] | None = None) -> None:
    flags = parser().parse_args(arguments)
    kopf.configure(log_format=LOG_FORMATS[flags.log_format], log_refkey="object")
    for chatty in ("aiohttp.access", "httpx", "kopf.objects"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    registry = CollectorRegistry()
    controller = Controller(options_of(flags), registry)
    start_http_server(flags.metrics_port, registry=registry)
    kopf.run(
        registry=handlers.REGISTRY,
        memo=kopf.Memo(controller=controller),
        standalone=True,
        # Asked for nothing here, but kopf would look the user up, and in an image he has no name.
        identity="headway-operator",  # type: ignore[arg-type]
        clusterwide=not flags.watch_namespace,
        namespaces=flags.watch_namespace,
        liveness_endpoint=f"http://0.0.0.0:{flags.probe_port}/healthz",
    )


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(
        prog="headway-operator",
        description="Turns InferencePools into Deployments of Headway's inference server.",
    )
    run = root.add_subparsers(required=True, metavar="COMMAND").add_parser(
        "run", help="watch InferencePools and carry them out, until told to stop"
    )
    run.add_argument(
        "--server-image",
        required=True,
        metavar="IMAGE",
        help="server image of pools that name none; recorded in a pool's status at first use",
    )
    run.add_argument(
        "--metrics-provider",
        action="append",
        default=[],
        type=_provider,
        metavar="NAME=URL",
        help="a Prometheus that pools refer to by name; may be given several times",
    )
    run.add_argument(
        "--namespace",
        required=True,
        help="namespace of this release, from which pools' metrics may be scraped",
    )
    run.add_argument(
        "--watch-namespace",
        action="append",
        default=[],
        metavar="NAMESPACE",
        help="carry out pools of this namespace only; may be given several times (default: all)",
    )
    run.add_argument("--workers", type=int, default=8, help="pools handled at the same time")
    run.add_argument(
        "--resync-seconds",
        type=float,
        default=600.0,
        help="how often all pools are looked at, whatever the watch says",
    )
    run.add_argument("--metrics-port", type=int, default=8080, help="port of /metrics")
    run.add_argument("--probe-port", type=int, default=8081, help="port of /healthz")
    run.add_argument(
        "--targets-port",
        type=int,
        default=8082,
        help="port of /targets, the pods to scrape, for Prometheus' http_sd_configs",
    )
    run.add_argument("--log-format", choices=sorted(LOG_FORMATS), default="json")
    return root


def options_of(flags: argparse.Namespace) -> Options:
    return Options(
        server_image=flags.server_image,
        providers=dict(flags.metrics_provider),
        release_namespace=flags.namespace,
        watch_namespaces=tuple(flags.watch_namespace),
        workers=flags.workers,
        resync_seconds=flags.resync_seconds,
        targets_port=flags.targets_port,
    )


def _provider(text: str) -> tuple[str, str]:
    try:
        return parse_provider(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


if __name__ == "__main__":
    main()
