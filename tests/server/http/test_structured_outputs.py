# SPDX-License-Identifier: Apache-2.0
"""From the request to the answer, on a model that would rather write anything else."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tests.server.http.random_model import random_model
from tests.server.http.serving import Serving, events, new_serving, texts

from headway_server.filler_codec import END_TOKEN_ID, filler_codec

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "kind": {"enum": ["cat", "dog"]},
        "ages": {"type": "array", "items": {"type": "integer", "maximum": 99}, "maxItems": 3},
    },
    "required": ["name", "kind", "ages"],
    "additionalProperties": False,
}
AS_SCHEMA = {"type": "json_schema", "json_schema": {"name": "pet", "schema": SCHEMA}}
A = filler_codec().encode_text("a")[0]


@pytest.fixture
async def wild() -> AsyncIterator[Serving]:
    with new_serving() as serving:
        serving.start(model=random_model())
        yield serving
        await serving.client.aclose()


def choice_of(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]


@pytest.mark.parametrize("temperature", [0, 1])
async def test_answer_follows_its_schema_and_its_neighbours_are_left_alone(
    wild: Serving, temperature: float
) -> None:
    free = choice_of(await wild.chat(max_tokens=60, seed=1))
    formed = [
        wild.chat(max_tokens=200, seed=n, temperature=temperature, response_format=AS_SCHEMA)
        for n in range(4)
    ]
    *answers, beside = await asyncio.gather(*formed, wild.chat(max_tokens=60, seed=1))
    assert choice_of(beside) == free
    for answer in answers:
        choice = choice_of(answer)
        assert choice["finish_reason"] == "stop"
        document = json.loads(choice["message"]["content"])
        assert document.keys() == SCHEMA["properties"].keys()  # type: ignore[attr-defined]
        assert len(document["name"]) <= 12
        assert document["kind"] in ("cat", "dog")
        assert len(document["ages"]) <= 3


async def test_stream_gives_the_same_document(wild: Serving) -> None:
    asked = {"max_tokens": 200, "seed": 3, "response_format": AS_SCHEMA}
    whole = choice_of(await wild.chat(**asked))["message"]["content"]
    chunks = events(await wild.chat(**asked, stream=True))
    assert "".join(texts(chunks)) == whole
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


async def test_document_that_is_cut_off_says_so(wild: Serving) -> None:
    choice = choice_of(await wild.chat(max_tokens=5, response_format=AS_SCHEMA))
    assert choice["finish_reason"] == "length"
    assert choice["message"]["content"].startswith("{")


async def test_any_object_begins_as_one(wild: Serving) -> None:
    asked = {"type": "json_object"}
    choice = choice_of(await wild.chat(max_tokens=300, seed=2, response_format=asked))
    content = choice["message"]["content"]
    assert content.startswith("{")
    assert choice["finish_reason"] == "length" or isinstance(json.loads(content), dict)


@pytest.mark.parametrize(
    ("structured", "pattern"),
    [
        ({"regex": r"[A-Z][a-z]{3,6} \d{2}"}, r"[A-Z][a-z]{3,6} \d{2}"),
        ({"grammar": 'start: ("on" | "off") "!"'}, r"(on|off)!"),
        ({"json": {"enum": ["left", "right"]}}, '"(left|right)"'),
        ({"json": '{"const": "\U0001fae0"}'}, '"\U0001fae0"'),
    ],
)
async def test_other_grammars_are_followed(
    wild: Serving, structured: dict[str, Any], pattern: str
) -> None:
    choice = choice_of(await wild.complete(max_tokens=30, structured_outputs=structured))
    assert re.fullmatch(pattern, choice["text"])
    assert choice["finish_reason"] == "stop"


async def test_grammar_goes_before_a_minimum_of_tokens(wild: Serving) -> None:
    asked = {"max_tokens": 40, "min_tokens": 30, "structured_outputs": {"regex": "yes"}}
    assert choice_of(await wild.complete(**asked))["text"] == "yes"


async def test_no_end_before_the_minimum_of_tokens(wild: Serving) -> None:
    asked = {"max_tokens": 40, "temperature": 0, "logit_bias": {str(END_TOKEN_ID): 100}}
    assert (await wild.complete(**asked)).json()["usage"]["completion_tokens"] == 1
    answer = (await wild.complete(**asked, min_tokens=7)).json()
    assert answer["usage"]["completion_tokens"] == 8
    assert answer["choices"][0]["finish_reason"] == "stop"


async def test_stop_token_ends_the_answer(wild: Serving) -> None:
    asked = {"max_tokens": 40, "temperature": 0, "logit_bias": {str(A): 100}}
    assert choice_of(await wild.complete(**asked))["text"] == "a" * 40
    choice = choice_of(await wild.complete(**asked, stop_token_ids=[A]))
    assert (choice["text"], choice["finish_reason"]) == ("", "stop")


async def test_penalties_follow_the_answer(wild: Serving) -> None:
    asked = {"max_tokens": 40, "temperature": 0, "logit_bias": {str(A): 10}}
    assert choice_of(await wild.complete(**asked))["text"] == "a" * 40
    once = choice_of(await wild.complete(**asked, presence_penalty=2, repetition_penalty=10))
    assert once["text"][0] == "a"
    assert once["text"].count("a") < 10
    falling = choice_of(await wild.complete(**asked, frequency_penalty=2))["text"]
    assert 3 <= len(falling) - len(falling.lstrip("a")) <= 6


async def test_logprobs_of_a_chat_say_its_tokens(wild: Serving) -> None:
    asked = {"max_tokens": 30, "temperature": 0, "logprobs": True, "top_logprobs": 3}
    answer = (await wild.chat(**asked)).json()
    content = answer["choices"][0]["logprobs"]["content"]
    assert len(content) == answer["usage"]["completion_tokens"] == 30
    spelled = b"".join(bytes(each["bytes"]) for each in content).decode(errors="replace")
    assert spelled == answer["choices"][0]["message"]["content"]
    for each in content:
        top = [other["logprob"] for other in each["top_logprobs"]]
        assert len(top) == 3
        assert top == sorted(top, reverse=True)
        assert each["logprob"] == top[0] < 0
    chunks = events(await wild.chat(**asked, stream=True))
    parts = [choice["logprobs"] for chunk in chunks for choice in chunk["choices"]]
    assert [each for part in parts if part for each in part["content"]] == content


async def test_logprobs_of_a_completion_go_as_far_as_its_text(wild: Serving) -> None:
    asked = {"max_tokens": 30, "seed": 4, "logit_bias": {str(A): 4}, "logprobs": 2}
    whole = choice_of(await wild.complete(**asked))
    stop = "a"
    choice = choice_of(await wild.complete(**asked, stop=stop))
    assert choice["text"] == whole["text"].partition(stop)[0]
    shown = len(choice["logprobs"]["tokens"])
    assert shown < 30
    for name, values in choice["logprobs"].items():
        assert values == whole["logprobs"][name][:shown]
    assert all(offset < len(choice["text"]) for offset in choice["logprobs"]["text_offset"])
