# SPDX-License-Identifier: Apache-2.0
"""What Prometheus is told to scrape: the running pods of pools, and never a guess."""

from typing import Any

import httpx
import pytest

from headway_operator.build.metadata import MANAGED_BY, MANAGED_BY_LABEL
from headway_operator.errors import Retry
from headway_operator.resources import PODS, Manifests, Resource
from headway_operator.targets import TargetServer, scrape_targets


def pod(name: str, phase: str = "Running", ip: str | None = "10.0.0.7") -> dict[str, Any]:
    labels = {"serving.headway.dev/pool": "chat", MANAGED_BY_LABEL: MANAGED_BY}
    status = {"phase": phase} | ({"podIP": ip} if ip else {})
    return {
        "metadata": {"name": name, "namespace": "team-a", "labels": labels},
        "status": status,
    }


def test_a_running_pod_is_scraped_under_its_pools_name() -> None:
    assert scrape_targets([pod("chat-1")]) == [
        {
            "targets": ["10.0.0.7:9000"],
            "labels": {"namespace": "team-a", "pod": "chat-1", "pool": "chat"},
        }
    ]


@pytest.mark.parametrize(
    "other",
    [
        pod("pending", phase="Pending", ip=None),
        pod("ended", phase="Failed"),
        {"metadata": {"name": "stranger", "namespace": "team-a"}, "status": {"phase": "Running"}},
    ],
    ids=["pending", "ended", "no-pool"],
)
def test_what_cannot_be_scraped_is_left_out(other: dict[str, Any]) -> None:
    assert scrape_targets([other]) == []


class Api:
    """Answers per namespace; an exception stands for an API that is away."""

    def __init__(self, answers: dict[str | None, Manifests | Retry]) -> None:
        self._answers = answers

    async def list(
        self, resource: Resource, namespace: str | None, labels: dict[str, str]
    ) -> Manifests:
        assert resource == PODS
        assert labels == {MANAGED_BY_LABEL: MANAGED_BY}
        answer = self._answers[namespace]
        if isinstance(answer, Retry):
            raise answer
        return answer


async def ask(api: Api, namespaces: tuple[str, ...] = ()) -> httpx.Response:
    server = TargetServer(api, namespaces, port=0)
    port = await server.start()
    try:
        async with httpx.AsyncClient() as http:
            return await http.get(f"http://127.0.0.1:{port}/targets")
    finally:
        await server.stop()


async def test_all_watched_namespaces_are_in_one_answer() -> None:
    answer = await ask(Api({"a": [pod("one")], "b": [pod("two")]}), ("a", "b"))
    assert [group["labels"]["pod"] for group in answer.json()] == ["one", "two"]


async def test_without_the_api_the_answer_is_an_error_so_that_the_last_list_stays() -> None:
    answer = await ask(Api({None: Retry("no answer")}))
    assert answer.status_code == 503
    assert "no answer" in answer.text
