# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes client against a server that answers as told, well or badly."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import ApiClient, Configuration

from headway_operator.errors import error_of
from headway_operator.kube import (
    CONFIGMAPS,
    DEPLOYMENTS,
    INFERENCEPOOLS,
    PODS,
    WORKLOADCLASSES,
    Conflict,
    Denied,
    Gone,
    KubeApi,
    KubeError,
    Retry,
)

CONFIGMAP = {"metadata": {"name": "a", "namespace": "ns"}, "data": {"k": "v"}}


class Server:
    """Answers with what the test queued and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[web.Response] = []
        self.asked: list[web.Request] = []
        self.bodies: list[Any] = []
        self.calls: list[tuple[str, str, int]] = []
        self.delay = 0.0

    def say(self, status: int, body: Any, **headers: str) -> None:
        text = body if isinstance(body, str) else json.dumps(body)
        self.answers.append(web.Response(status=status, text=text, headers=headers))

    def refuse(self, status: int, message: str, **headers: str) -> None:
        self.say(status, {"kind": "Status", "message": message}, **headers)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        text = await request.text()
        self.bodies.append(json.loads(text) if text else None)
        await asyncio.sleep(self.delay)
        if self.answers:
            return self.answers.pop(0)
        assert request.transport is not None
        request.transport.close()
        return web.Response()


@pytest.fixture
async def server() -> Server:
    return Server()


@pytest.fixture
async def api(server: Server) -> AsyncIterator[KubeApi]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    async with TestServer(app) as listening:
        configuration = Configuration(host=str(listening.make_url("")).rstrip("/"))
        configuration.api_key["BearerToken"] = "bearer secret"
        client = KubeApi(
            ApiClient(configuration),
            timeout_seconds=0.5,
            on_request=lambda *call: server.calls.append(call),
        )
        yield client
        await client.close()


async def test_an_apply_is_forced_in_the_managers_name(api: KubeApi, server: Server) -> None:
    server.say(201, CONFIGMAP)
    assert await api.apply(CONFIGMAPS, CONFIGMAP, manager="me") == CONFIGMAP
    (request,) = server.asked
    assert (request.method, request.path) == ("PATCH", "/api/v1/namespaces/ns/configmaps/a")
    assert dict(request.query) == {"fieldManager": "me", "force": "true"}
    assert request.content_type == "application/apply-patch+yaml"
    assert request.headers["Authorization"] == "bearer secret"
    assert server.bodies == [CONFIGMAP]
    assert server.calls == [("patch", "configmaps", 201)]


async def test_status_is_a_subresource(api: KubeApi, server: Server) -> None:
    server.say(200, {})
    await api.apply_status(INFERENCEPOOLS, CONFIGMAP, manager="me")
    path = "/apis/serving.headway.dev/v1alpha1/namespaces/ns/inferencepools/a/status"
    assert server.asked[0].path == path
    assert server.calls == [("patch", "inferencepools/status", 200)]


async def test_a_list_follows_its_pages_and_names_each_items_kind(
    api: KubeApi, server: Server
) -> None:
    server.say(200, {"items": [{"metadata": {"name": "a"}}], "metadata": {"continue": "more"}})
    server.say(200, {"items": None, "metadata": {"continue": "and more"}})
    server.say(200, {"items": [{"metadata": {"name": "b"}}], "metadata": {}})
    found = await api.list(DEPLOYMENTS, "ns", {"b": "2", "a": "1"})
    assert [item["metadata"]["name"] for item in found] == ["a", "b"]
    assert {(item["apiVersion"], item["kind"]) for item in found} == {("apps/v1", "Deployment")}
    assert [request.query.get("continue") for request in server.asked] == [None, "more", "and more"]
    assert {request.query["labelSelector"] for request in server.asked} == {"a=1,b=2"}
    assert server.asked[0].path == "/apis/apps/v1/namespaces/ns/deployments"


async def test_all_namespaces_and_no_namespace_have_their_paths(
    api: KubeApi, server: Server
) -> None:
    server.say(200, {"items": []})
    server.say(200, {})
    await api.list(PODS)
    await api.get(WORKLOADCLASSES, "chat")
    assert [request.path for request in server.asked] == [
        "/api/v1/pods",
        "/apis/serving.headway.dev/v1alpha1/workloadclasses/chat",
    ]


async def test_a_name_cannot_reach_another_path(api: KubeApi, server: Server) -> None:
    server.say(200, {})
    await api.get(CONFIGMAPS, "../secrets/s", "ns")
    assert server.asked[0].raw_path.endswith("/configmaps/..%2Fsecrets%2Fs")


async def test_only_the_very_object_that_was_read_is_deleted(api: KubeApi, server: Server) -> None:
    server.say(200, {})
    live = {"metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7"}}
    await api.delete(PODS, live)
    assert server.asked[0].method == "DELETE"
    assert server.bodies[0]["preconditions"] == {"uid": "u", "resourceVersion": "7"}


async def test_an_annotation_is_merged(api: KubeApi, server: Server) -> None:
    server.say(200, {})
    await api.annotate(PODS, "a", "ns", {"k": "v"})
    assert server.asked[0].content_type == "application/merge-patch+json"
    assert server.bodies == [{"metadata": {"annotations": {"k": "v"}}}]


ERRORS: list[tuple[int, type[KubeError]]] = [
    (404, Gone),
    (410, Gone),
    (409, Conflict),
    (400, Denied),
    (403, Denied),
    (413, Denied),
    (422, Denied),
    (401, Retry),
    (429, Retry),
    (500, Retry),
    (503, Retry),
    (504, Retry),
]


@pytest.mark.parametrize(("status", "kind"), ERRORS)
async def test_an_error_is_one_of_four_in_the_servers_words(
    api: KubeApi, server: Server, status: int, kind: type[KubeError]
) -> None:
    server.refuse(status, "in so many words")
    with pytest.raises(kind, match="in so many words"):
        await api.get(PODS, "a", "ns")
    assert len(server.asked) == 1
    assert server.calls == [("get", "pods", status)]


@pytest.mark.parametrize(
    ("header", "after"), [("7", 7.0), ("0", 0.0), ("-3", 0.0), ("Wed, 21 Oct", 0.0)]
)
async def test_the_wait_the_server_asks_for_is_passed_on(
    api: KubeApi, server: Server, header: str, after: float
) -> None:
    server.refuse(429, "slow down", **{"Retry-After": header})
    with pytest.raises(Retry) as refused:
        await api.apply(CONFIGMAPS, CONFIGMAP, manager="me")
    assert refused.value.after == after
    assert len(server.asked) == 1


async def test_a_namespace_on_its_way_out_shows(api: KubeApi, server: Server) -> None:
    causes = {"causes": [{"reason": "NamespaceTerminating"}]}
    server.say(403, {"message": "being terminated", "details": causes})
    with pytest.raises(Denied) as refused:
        await api.apply(CONFIGMAPS, CONFIGMAP, manager="me")
    assert refused.value.namespace_terminating


@pytest.mark.parametrize("body", ["<html>", "", "[]", "null", '{"half": '])
@pytest.mark.parametrize("status", [200, 502])
async def test_an_answer_that_is_no_object_is_worth_another_try(
    api: KubeApi, server: Server, status: int, body: str
) -> None:
    server.say(status, body)
    with pytest.raises(Retry, match=f"answered {status}"):
        await api.get(PODS, "a", "ns")


async def test_a_cut_connection_is_worth_another_try(api: KubeApi, server: Server) -> None:
    with pytest.raises(Retry, match="get pods: the API server did not answer"):
        await api.get(PODS, "a", "ns")
    assert server.calls == [("get", "pods", 0)]


async def test_a_server_that_is_silent_is_not_waited_for_for_ever(
    api: KubeApi, server: Server
) -> None:
    server.delay = 60
    with pytest.raises(Retry, match="did not answer"):
        await api.get(PODS, "a", "ns")


def test_a_field_an_older_server_does_not_know_is_a_refusal() -> None:
    message = "failed to create typed patch object: .spec.image: field not declared in schema"
    assert isinstance(error_of("patch", 500, {"message": message}, None), Denied)


CALLS: list[Callable[[KubeApi], Awaitable[Any]]] = [
    lambda api: api.create(CONFIGMAPS, CONFIGMAP),
    lambda api: api.list(CONFIGMAPS),
    lambda api: api.merge(CONFIGMAPS, "a", "ns", {}),
]


@pytest.mark.parametrize("call", CALLS)
async def test_nothing_is_ever_tried_twice(
    api: KubeApi, server: Server, call: Callable[[KubeApi], Awaitable[Any]]
) -> None:
    server.refuse(503, "later")
    server.say(200, {})
    with pytest.raises(Retry):
        await call(api)
    assert len(server.asked) == 1
