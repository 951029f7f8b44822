# SPDX-License-Identifier: Apache-2.0
"""A thin asynchronous Kubernetes client over plain dictionaries.

The generated clients retry, cache and validate in ways a controller cannot see through, so only
their transport and authentication are used. Every failure leaves here as one of four errors, and
nothing here retries: what to do about an error is the caller's decision.
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import load_incluster_config, load_kube_config

from headway_operator.errors import Conflict, Denied, Gone, KubeError, Retry, error_of
from headway_operator.resources import (
    CONFIGMAPS,
    DEPLOYMENTS,
    EVENTS,
    INFERENCEPOOLS,
    NETWORKPOLICIES,
    PODS,
    SERVICEACCOUNTS,
    SERVICES,
    WORKLOADCLASSES,
    Manifest,
    Manifests,
    Resource,
)

__all__ = [
    "CONFIGMAPS",
    "DEPLOYMENTS",
    "EVENTS",
    "INFERENCEPOOLS",
    "NETWORKPOLICIES",
    "PODS",
    "SERVICEACCOUNTS",
    "SERVICES",
    "WORKLOADCLASSES",
    "Conflict",
    "Denied",
    "Gone",
    "KubeApi",
    "KubeError",
    "Manifest",
    "Manifests",
    "Resource",
    "Retry",
]

Query = list[tuple[str, str]]
OnRequest = Callable[[str, str, int], None]

APPLY_PATCH = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
PAGE_SIZE = 500
KUBECONFIG_FILE = Path("~/.kube/config")


class KubeApi:
    """`on_request(verb, resource, status)` is told of every call; status 0 is no answer."""

    def __init__(
        self,
        client: ApiClient,
        *,
        timeout_seconds: float = 30.0,
        connect_seconds: float = 10.0,
        on_request: OnRequest = lambda verb, resource, status: None,
    ) -> None:
        self._client = client
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=connect_seconds)
        self._on_request = on_request

    @classmethod
    async def connect(
        cls, *, user_agent: str, on_request: OnRequest = lambda verb, resource, status: None
    ) -> Self:
        """Use the kubeconfig where there is one, else the pod's service account."""
        configuration = Configuration()
        if kubeconfig := _kubeconfig():
            await load_kube_config(config_file=kubeconfig, client_configuration=configuration)
        else:
            load_incluster_config(client_configuration=configuration)
        client = ApiClient(configuration)
        client.user_agent = user_agent
        return cls(client, on_request=on_request)

    async def close(self) -> None:
        await self._client.close()

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Manifest:
        return await self._call("get", "GET", resource, namespace, name)

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Manifests:
        """Every matching object of the namespace, or of the whole cluster when it is None."""
        query: Query = [("limit", str(PAGE_SIZE))]
        if labels:
            selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
            query.append(("labelSelector", selector))
        typed = {"apiVersion": resource.api_version, "kind": resource.kind}
        found: Manifests = []
        page: Query = []
        while True:
            answer = await self._call("list", "GET", resource, namespace, query=query + page)
            found.extend(typed | item for item in answer.get("items") or [])
            token = (answer.get("metadata") or {}).get("continue")
            if not token:
                return found
            page = [("continue", token)]

    async def create(self, resource: Resource, manifest: Manifest) -> Manifest:
        namespace = manifest["metadata"].get("namespace")
        return await self._call("create", "POST", resource, namespace, body=manifest)

    async def apply(self, resource: Resource, manifest: Manifest, *, manager: str) -> Manifest:
        """Server-side apply; conflicts are forced, since only fields that are ours are sent."""
        return await self._apply(resource, manifest, manager, subresource=None)

    async def apply_status(
        self, resource: Resource, manifest: Manifest, *, manager: str
    ) -> Manifest:
        """Server-side apply of `/status`; what the manager applied before and omits now goes."""
        return await self._apply(resource, manifest, manager, subresource="status")

    async def annotate(
        self, resource: Resource, name: str, namespace: str, annotations: Mapping[str, str]
    ) -> Manifest:
        body = {"metadata": {"annotations": dict(annotations)}}
        return await self.merge(resource, name, namespace, body)

    async def merge(
        self, resource: Resource, name: str, namespace: str, body: Manifest
    ) -> Manifest:
        """JSON merge patch: the given fields and no others."""
        return await self._call(
            "patch", "PATCH", resource, namespace, name, body=body, content_type=MERGE_PATCH
        )

    async def delete(self, resource: Resource, live: Manifest) -> None:
        """Delete exactly the object that was read: Conflict if it has changed since."""
        meta = live["metadata"]
        preconditions = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": preconditions,
            "propagationPolicy": "Background",
        }
        await self._call(
            "delete", "DELETE", resource, meta.get("namespace"), meta["name"], body=body
        )

    async def _apply(
        self, resource: Resource, manifest: Manifest, manager: str, subresource: str | None
    ) -> Manifest:
        meta = manifest["metadata"]
        return await self._call(
            "patch",
            "PATCH",
            resource,
            meta.get("namespace"),
            meta["name"],
            subresource=subresource,
            query=[("fieldManager", manager), ("force", "true")],
            body=manifest,
            content_type=APPLY_PATCH,
        )

    async def _call(
        self,
        verb: str,
        method: str,
        resource: Resource,
        namespace: str | None,
        name: str | None = None,
        *,
        subresource: str | None = None,
        query: Query | None = None,
        body: Manifest | None = None,
        content_type: str = "application/json",
    ) -> Manifest:
        template = resource.path
        if namespace is not None:
            template += "/namespaces/{namespace}"
        template += f"/{resource.plural}"
        if name is not None:
            template += "/{name}"
        if subresource is not None:
            template += f"/{subresource}"
        target = f"{resource.plural}/{subresource}" if subresource else resource.plural
        status = 0
        try:
            request = await self._client.param_serialize(
                method,
                template,
                path_params={"namespace": namespace or "", "name": name or ""},
                query_params=query or [],
                header_params={"Accept": "application/json", "Content-Type": content_type},
                body=body,
                auth_settings=["BearerToken"],
            )
            response = await self._client.call_api(*request, _request_timeout=self._timeout)
            status = response.status
            data = await response.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise Retry(f"{verb} {target}: the API server did not answer: {reason}") from error
        finally:
            self._on_request(verb, target, status)
        answer = _parse(data)
        if 200 <= status < 300 and answer is not None:
            return answer
        raise error_of(f"{verb} {target}", status, answer, response.headers.get("Retry-After"))


def _kubeconfig() -> str | None:
    file = KUBECONFIG_FILE.expanduser()
    return os.environ.get("KUBECONFIG") or (str(file) if file.exists() else None)


def _parse(data: bytes) -> Manifest | None:
    try:
        answer = json.loads(data)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None
