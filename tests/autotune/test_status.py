# SPDX-License-Identifier: Apache-2.0
"""The tuner and the operator share one status on a real API server, each by its own manager."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import load_kube_config
from prometheus_client import CollectorRegistry

from headway_api.names import API_VERSION, INFERENCE_POOL, OPERATOR_MANAGER
from headway_autotune.loop import Tuner, TunerConfig
from headway_autotune.metrics import TunerMetrics
from headway_operator.kube import EVENTS, INFERENCEPOOLS, KubeApi
from headway_operator.prometheus import Prometheus
from tests.api_server import ApiServer
from tests.autotune.given import NOW
from tests.autotune.stubs import Manifest, StubPrometheus, pool_manifest

NAMESPACE = "tuned"
TUNER_CONDITIONS = ("MetricsAvailable", "SLOMet", "Tuning")


@pytest.fixture
async def kube(api_server: ApiServer) -> AsyncIterator[KubeApi]:
    configuration = Configuration()
    await load_kube_config(str(api_server.kubeconfig), client_configuration=configuration)
    kube = KubeApi(ApiClient(configuration))
    yield kube
    await kube.close()


async def tick(kube: KubeApi, seconds: float) -> None:
    now = NOW + seconds
    async with StubPrometheus(met=120).client() as http:
        await Tuner(
            kube,
            {"default": Prometheus("http://prometheus", http)},
            TunerMetrics(CollectorRegistry(), lambda: now),
            TunerConfig(namespaces=(NAMESPACE,)),
            lambda: now,
        ).tick()


async def operator_writes(kube: KubeApi, pool: Manifest, status: Manifest) -> None:
    document = {
        "apiVersion": API_VERSION,
        "kind": INFERENCE_POOL,
        "metadata": {"namespace": NAMESPACE, "name": pool["metadata"]["name"]},
        "status": status,
    }
    await kube.apply_status(INFERENCEPOOLS, document, manager=OPERATOR_MANAGER)


def conditions(pool: Manifest) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in pool["status"]["conditions"]}


def without_tuner_conditions(status: dict[str, Any]) -> dict[str, Any]:
    kept = [c for c in status["conditions"] if c["type"] not in TUNER_CONDITIONS]
    return {**status, "conditions": kept}


async def test_both_write_and_neither_takes_anything_away(
    api_server: ApiServer, kube: KubeApi
) -> None:
    api_server.create_namespace(NAMESPACE)
    given = pool_manifest("support")
    meta = {"namespace": NAMESPACE, "name": "support"}
    body = {"apiVersion": API_VERSION, "kind": INFERENCE_POOL, "metadata": meta}
    created = await kube.create(INFERENCEPOOLS, {**body, "spec": given["spec"]})
    generation = created["metadata"]["generation"]
    first = {**given["status"], "observedGeneration": generation}
    await operator_writes(kube, created, first)

    await tick(kube, 0)
    pool = await kube.get(INFERENCEPOOLS, "support", NAMESPACE)
    [chat] = pool["status"]["workloads"]
    assert chat["effective"] == {"maxBatchTotalTokens": 20_000}
    assert chat["recommended"] == {"maxBatchTotalTokens": 24_000}
    assert conditions(pool)["Available"][0] == "True"
    assert conditions(pool)["Tuning"] == ("True", "Evaluating")
    assert pool["spec"] == created["spec"]
    reasons = [event["reason"] for event in await kube.list(EVENTS, NAMESPACE)]
    assert sorted(reasons) == ["SLOBreached", "TuningRecommended"]

    applied = {"workloads": [{"name": "chat", "effective": {"maxBatchTotalTokens": 24_000}}]}
    await operator_writes(kube, created, without_tuner_conditions({**first, **applied}))
    pool = await kube.get(INFERENCEPOOLS, "support", NAMESPACE)
    [chat] = pool["status"]["workloads"]
    assert chat["recommended"] == chat["effective"] == {"maxBatchTotalTokens": 24_000}
    assert conditions(pool)["Tuning"] == ("True", "Evaluating")
    assert len(pool["status"]["autotune"]["history"]) == 1

    disabled = {"spec": {"autotune": {"mode": "Disabled"}}}
    changed = await kube.merge(INFERENCEPOOLS, "support", NAMESPACE, disabled)
    await tick(kube, 5)
    await tick(kube, 10)
    pool = await kube.get(INFERENCEPOOLS, "support", NAMESPACE)
    assert pool["metadata"]["generation"] == changed["metadata"]["generation"]
    assert conditions(pool)["Tuning"] == ("False", "Disabled")
    assert pool["status"]["workloads"] == applied["workloads"]
    assert len(pool["status"]["autotune"]["history"]) == 1
