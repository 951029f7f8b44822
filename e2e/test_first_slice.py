# SPDX-License-Identifier: Apache-2.0
"""The main path, as its user walks it: apply, ask, change live, tune, break, delete."""

from pathlib import Path

import pytest

from demo import chat, pool, tuning
from demo.kubectl import Tools, await_condition
from demo.stages import ToldOnce
from headway_api.names import HTTP_PORT

pytestmark = pytest.mark.timeout(900)

EXAMPLES = Path(__file__).parents[1] / "examples"
MODEL = "smollm2"


@pytest.fixture(scope="module")
def chat_pool(tools: Tools) -> Tools:
    pool.apply(tools, EXAMPLES / "chat.yaml")
    pool.await_ready(tools, "chat", 600, print)
    return tools


def test_a_ready_pool_says_what_it_runs(chat_pool: Tools) -> None:
    wide = chat_pool.kubectl("get", "hpool", "chat", "-o", "wide")
    assert "SmolLM2-135M-Instruct" in wide
    seen = pool.read(chat_pool, "chat")
    assert "finalizers" not in seen["metadata"]
    await_condition(
        "the capacity that the replica reported",
        lambda: pool.capacity(pool.read(chat_pool, "chat")) == 8192 or None,
        seconds=60,
    )
    assert pool.effective_budget(seen, "chat") == 2048
    generations = {c["observedGeneration"] for c in seen["status"]["conditions"]}
    assert generations == {seen["metadata"]["generation"]}


def test_an_answer_streams_token_by_token(chat_pool: Tools) -> None:
    with chat_pool.port_forward("service/chat", HTTP_PORT) as url:
        pieces = list(chat.stream_answer(url, MODEL, "What is the capital of France?"))
    assert "Paris" in "".join(pieces)
    assert len(pieces) > 3


def test_a_patch_reaches_the_engine_without_a_restart(chat_pool: Tools) -> None:
    before = pool.pods(chat_pool, "chat")
    seconds = pool.seconds_until_engine_has(
        chat_pool, "chat", "chat", 3072, lambda: pool.patch_budget(chat_pool, "chat", 3072)
    )
    print(f"patch to engine: {seconds:.2f} s")
    assert pool.pods(chat_pool, "chat") == before


def test_a_deleted_deployment_comes_back(chat_pool: Tools) -> None:
    uid = chat_pool.get("deployment", "chat")["metadata"]["uid"]
    chat_pool.kubectl("delete", "deployment", "chat", "--wait=false")

    def another() -> str | None:
        found = chat_pool.kubectl(
            "get", "deployment", "chat", "--ignore-not-found", "-o", "jsonpath={.metadata.uid}"
        )
        return found if found not in ("", uid) else None

    await_condition("a new Deployment", another, seconds=60, interval=0.05)
    await_condition(
        "one pod again",
        lambda: len(pool.pods(chat_pool, "chat")) == 1 or None,
        seconds=120,
    )
    pool.await_ready(chat_pool, "chat", 300, print)


def test_the_tuner_mends_a_wrong_budget_by_itself(chat_pool: Tools) -> None:
    pool.apply(chat_pool, EXAMPLES / "chat-tuned.yaml")
    pool.await_ready(chat_pool, "chat", 300, print)
    before = pool.pods(chat_pool, "chat")
    report = tuning.watch_the_tuner(chat_pool, "chat", "assistant", ToldOnce(print))
    print(f"before: {report.before}\nafter: {report.after}")
    first = report.changes[0]
    assert (first["action"], first["parameter"]) == ("Increase", "maxBatchTotalTokens")
    assert (first["workloadName"], first["from"]) == ("assistant", 256)
    assert report.before.share is not None
    assert report.after.share is not None
    assert report.after.share > report.before.share
    assert pool.pods(chat_pool, "chat") == before
    spec = pool.read(chat_pool, "chat")["spec"]
    assert spec["workloads"][1]["batching"]["maxBatchTotalTokens"] == 256
