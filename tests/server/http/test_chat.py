# SPDX-License-Identifier: Apache-2.0
"""What a client gets back: the shapes, the text, the counts."""

import pytest
from tests.server.http.serving import MODEL, Serving, events, texts

# The prompt that the filler template makes of one user message "hi", in bytes.
HI_TOKENS = len("user:hi") + 1 + len("assistant:")


async def test_whole_answer_has_the_shape_of_a_chat_completion(ready: Serving) -> None:
    response = await ready.chat(max_tokens=7)
    answer = response.json()
    assert response.status_code == 200
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    assert answer["model"] == MODEL
    choice = answer["choices"][0]
    assert choice["message"]["role"] == "assistant"
    assert len(choice["message"]["content"]) == 7
    assert choice["finish_reason"] == "length"
    assert answer["usage"] == {
        "prompt_tokens": HI_TOKENS,
        "completion_tokens": 7,
        "total_tokens": HI_TOKENS + 7,
    }


async def test_stream_opens_with_the_role_and_ends_with_an_empty_delta(ready: Serving) -> None:
    response = await ready.chat(max_tokens=3, stream=True)
    chunks = events(response)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-accel-buffering"] == "no"
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert chunks[-1]["choices"][0]["delta"] == {}
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["length"]
    assert all("usage" not in chunk for chunk in chunks)


async def test_usage_comes_in_a_chunk_of_its_own_when_asked_for(ready: Serving) -> None:
    response = await ready.chat(max_tokens=3, stream=True, stream_options={"include_usage": True})
    *chunks, last = events(response)
    assert all(chunk["usage"] is None for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 3
    assert last["usage"]["prompt_tokens"] == HI_TOKENS


async def test_stream_concatenates_to_the_whole_answer(ready: Serving) -> None:
    whole = (await ready.chat(max_tokens=40)).json()["choices"][0]["message"]["content"]
    streamed = texts(events(await ready.chat(max_tokens=40, stream=True)))
    assert "".join(streamed) == whole


async def test_completions_take_text_and_token_ids_alike(ready: Serving) -> None:
    of_text = (await ready.complete("abc", max_tokens=5)).json()
    ids = ready.service.check_ready().codec.encode_text("abc")
    of_ids = (await ready.complete(list(ids), max_tokens=5)).json()
    assert of_text["object"] == "text_completion"
    assert of_text["choices"][0]["text"] == of_ids["choices"][0]["text"]
    assert of_ids["usage"]["prompt_tokens"] == 3


async def test_completion_stream_has_text_chunks_only(ready: Serving) -> None:
    chunks = events(await ready.complete("abc", max_tokens=5, stream=True))
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    assert len("".join(texts(chunks))) == 5
    assert chunks[-1]["choices"][0] == {
        "index": 0,
        "text": "",
        "logprobs": None,
        "finish_reason": "length",
    }


async def test_completions_default_to_sixteen_tokens(ready: Serving) -> None:
    assert (await ready.complete()).json()["usage"]["completion_tokens"] == 16


async def test_chat_defaults_to_what_the_context_leaves(ready: Serving) -> None:
    usage = (await ready.chat()).json()["usage"]
    assert usage["total_tokens"] == 256


async def test_max_completion_tokens_goes_before_max_tokens(ready: Serving) -> None:
    answer = (await ready.chat(max_tokens=9, max_completion_tokens=4)).json()
    assert answer["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize("stream", [False, True])
async def test_stop_string_ends_the_answer_and_is_not_shown(ready: Serving, stream: bool) -> None:
    whole = (await ready.complete(max_tokens=40)).json()["choices"][0]["text"]
    stop = whole[10:13]
    cut = whole.index(stop)
    response = await ready.complete(
        max_tokens=40, stop=[stop], stream=stream, stream_options={"include_usage": True}
    )
    if stream:
        *chunks, last = events(response)
        text, reason = "".join(texts(chunks)), chunks[-1]["choices"][0]["finish_reason"]
        usage = last["usage"]
    else:
        answer = response.json()
        text, reason = answer["choices"][0]["text"], answer["choices"][0]["finish_reason"]
        usage = answer["usage"]
    assert text == whole[:cut]
    assert reason == "stop"
    assert usage["completion_tokens"] == cut + len(stop)


async def test_text_parts_are_joined(ready: Serving) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    joined = (await ready.chat(parts, max_tokens=8)).json()
    plain = (await ready.chat("a\nb", max_tokens=8)).json()
    assert joined["choices"] == plain["choices"]


async def test_unknown_parameters_are_ignored(ready: Serving) -> None:
    response = await ready.chat(
        max_tokens=1, logit_bias={"5": 1}, tools=[{"type": "nonsense"}], no_such_thing=[[]]
    )
    assert response.status_code == 200


async def test_nulls_stand_for_defaults(ready: Serving) -> None:
    fields = ["temperature", "top_p", "top_k", "seed", "stop", "n", "stream", "stream_options"]
    nulls = dict.fromkeys([*fields, "user", "ignore_eos", "max_tokens"])
    response = await ready.chat(max_completion_tokens=1, **nulls)
    assert response.status_code == 200


async def test_models_are_listed_and_found_by_name(ready: Serving) -> None:
    listed = (await ready.client.get("/v1/models")).json()
    assert [card["id"] for card in listed["data"]] == [MODEL]
    assert (await ready.client.get(f"/v1/models/{MODEL}")).json() == listed["data"][0]
    assert (await ready.client.get("/v1/models/other")).status_code == 404
