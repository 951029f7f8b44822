# SPDX-License-Identifier: Apache-2.0
"""Tells Prometheus which pods to scrape, by its HTTP service discovery.

Not every build of Prometheus knows Kubernetes, and one that does needs the right to read pods. The
operator reads the pods of its pools anyway, so the Prometheus of the chart needs no rights at all.
"""

from collections.abc import Sequence
from typing import Protocol

from aiohttp import web

from headway_api.names import METRICS_PORT, POOL_LABEL
from headway_operator.build.metadata import MANAGED_BY, MANAGED_BY_LABEL
from headway_operator.errors import KubeError
from headway_operator.resources import PODS, Manifest, Manifests, Resource

TARGETS_PATH = "/targets"


class PodLister(Protocol):
    async def list(
        self, resource: Resource, namespace: str | None, labels: dict[str, str]
    ) -> Manifests: ...


class TargetServer:
    """Serves `GET /targets`; without the API it is a 503, and Prometheus keeps its last list."""

    def __init__(self, api: PodLister, namespaces: Sequence[str], port: int) -> None:
        self._api = api
        self._namespaces = tuple(namespaces)
        self._port = port
        self._runner: web.AppRunner | None = None

    async def start(self) -> int:
        """The port it listens on, which differs from the one asked for only when that was 0."""
        app = web.Application()
        app.router.add_get(TARGETS_PATH, self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "0.0.0.0", self._port).start()  # noqa: S104
        port: int = self._runner.addresses[0][1]
        return port

    async def stop(self) -> None:
        if self._runner:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        managed = {MANAGED_BY_LABEL: MANAGED_BY}
        try:
            pages = [
                await self._api.list(PODS, namespace, managed)
                for namespace in self._namespaces or (None,)
            ]
        except KubeError as error:
            raise web.HTTPServiceUnavailable(text=f"pods could not be listed: {error}") from error
        return web.json_response(scrape_targets([pod for page in pages for pod in page]))


def scrape_targets(pods: Manifests) -> list[Manifest]:
    """One group for each running pod of a pool, in Prometheus' http_sd form."""
    return [
        {
            "targets": [f"{pod['status']['podIP']}:{METRICS_PORT}"],
            "labels": {
                "namespace": pod["metadata"]["namespace"],
                "pod": pod["metadata"]["name"],
                "pool": pod["metadata"]["labels"][POOL_LABEL],
            },
        }
        for pod in pods
        if POOL_LABEL in pod["metadata"].get("labels", {})
        and pod.get("status", {}).get("phase") == "Running"
        and pod["status"].get("podIP")
    ]
