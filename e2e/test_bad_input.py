# SPDX-License-Identifier: Apache-2.0
"""Mistakes a user makes, and the words that tell him: at apply, in conditions, in an answer."""

from typing import Any

import httpx
import pytest
import yaml

from demo import pool
from demo.kubectl import CommandError, Tools, await_condition
from headway_api.names import HTTP_PORT

pytestmark = pytest.mark.timeout(900)

MODEL_IMAGE = "localhost/headway/smollm2-135m-instruct:1"


def manifest(name: str, **changes: Any) -> dict[str, Any]:
    """A small pool on CPUs; `changes` replace whole members of its spec."""
    spec = {
        "model": {
            "name": "SmolLM2-135M-Instruct",
            "source": "Image",
            "image": {"reference": MODEL_IMAGE},
        },
        "engine": {"maxInputTokens": 96, "maxTotalTokens": 128, "kvCacheCapacityTokens": 2048},
        "resources": {"gpu": {"count": 0}, "cpu": "200m", "memory": "3Gi"},
    }
    return {
        "apiVersion": "serving.headway.dev/v1alpha1",
        "kind": "InferencePool",
        "metadata": {"name": name},
        "spec": spec | changes,
    }


def apply(tools: Tools, document: dict[str, Any]) -> None:
    tools.kubectl("apply", "-f", "-", input_text=yaml.safe_dump(document))


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (manifest("p", replica=2), 'unknown field "spec.replica"'),
        (manifest("p" * 60), "metadata.name must not exceed 40 characters"),
        (
            manifest(
                "p",
                workloads=[
                    {
                        "name": "chat",
                        "bounds": {"maxBatchTotalTokens": {"min": 9000, "max": 8000}},
                    }
                ],
            ),
            "min must not exceed max",
        ),
    ],
    ids=["unknown-field", "long-name", "min-above-max"],
)
def test_a_bad_pool_is_refused_at_apply(tools: Tools, document: dict[str, Any], words: str) -> None:
    with pytest.raises(CommandError, match=words):
        apply(tools, document)


def words_of(tools: Tools, name: str, kind: str, reason: str) -> str:
    """The message of a condition once it has that reason."""

    def look() -> str | None:
        found = pool.condition(pool.read(tools, name), kind)
        return found["message"] if found and found["reason"] == reason else None

    return await_condition(f"{name}: {kind} {reason}", look, seconds=300)


def test_a_model_that_does_not_exist_is_told_in_the_servers_own_words(tools: Tools) -> None:
    model = {"name": "NoSuchModel", "source": "Image", "image": {"reference": MODEL_IMAGE}}
    apply(tools, manifest("no-model", model=model))
    message = words_of(tools, "no-model", "Available", "ModelLoadFailed")
    assert "/models/NoSuchModel" in message
    tools.kubectl("delete", pool.KIND, "no-model")


def test_a_server_that_crashes_is_told_with_its_last_line(tools: Tools) -> None:
    engine = manifest("x")["spec"]["engine"] | {"extraArgs": ["--no-such-flag"]}
    apply(tools, manifest("crash", engine=engine))
    message = words_of(tools, "crash", "Available", "CrashLooping")
    assert "--no-such-flag" in message
    tools.kubectl("delete", pool.KIND, "crash")


def test_a_gpu_that_is_not_there_is_told_in_the_schedulers_words(tools: Tools) -> None:
    apply(tools, manifest("no-gpu", resources={"gpu": {"count": 16}, "cpu": "100m"}))
    message = words_of(tools, "no-gpu", "Available", "Unschedulable")
    assert "Insufficient nvidia.com/gpu" in message
    tools.kubectl("delete", pool.KIND, "no-gpu")


@pytest.fixture(scope="module")
def small_pool(tools: Tools) -> Tools:
    apply(tools, manifest("small"))
    pool.await_ready(tools, "small", 600, print)
    return tools


def test_a_request_over_the_limit_names_limit_and_count(small_pool: Tools) -> None:
    with small_pool.port_forward("service/small", HTTP_PORT) as url:
        body = {"model": "small", "prompt": "word" + " word" * 199, "max_tokens": 8}
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert "96" in error["message"]
    assert "200" in error["message"]


def test_a_value_the_engine_cannot_hold_is_refused_and_the_old_one_stays(
    small_pool: Tools,
) -> None:
    await_condition(
        "the profiled budget in status",
        lambda: pool.effective_budget(pool.read(small_pool, "small"), "default") == 2048 or None,
        seconds=60,
    )
    workloads = [{"name": "default", "batching": {"maxBatchTotalTokens": 4096}}]
    apply(small_pool, manifest("small", workloads=workloads))
    message = words_of(small_pool, "small", "RuntimeConfigSynced", "ReplicaRejected")
    assert "maxBatchTotalTokens" in message
    assert pool.budget_in_engine(small_pool, "small", "default") == 2048
    apply(small_pool, manifest("small"))
    pool.await_ready(small_pool, "small", 120, print)


def test_a_deleted_pool_leaves_nothing_behind(small_pool: Tools) -> None:
    small_pool.kubectl("delete", pool.KIND, "small")

    def nothing_left() -> bool | None:
        kinds = "deployments,services,configmaps,serviceaccounts,networkpolicies,pods"
        names = small_pool.kubectl(
            "get", kinds, "-l", "serving.headway.dev/pool=small", "-o", "name"
        )
        return True if not names.strip() else None

    await_condition("the children of the pool gone", nothing_left, seconds=180)
