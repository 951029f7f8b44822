# SPDX-License-Identifier: Apache-2.0
"""Logprobs in OpenAI's shapes, as its own client reads them."""

import math

import orjson
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from headway_server.accounting import Timeline
from headway_server.api.shapes import CHAT, COMPLETION, Form, Shape
from headway_server.engine.messages import TokenLogprob
from headway_server.filler_codec import filler_codec
from headway_server.token_logprobs import PlacedLogprob

CODEC = filler_codec()
A, B, PART = CODEC.encode_text("ab") + CODEC.encode_text("\U0001fae0")[:1]
PLACED = (
    PlacedLogprob(0, TokenLogprob(A, -0.5, ((B, -0.25), (A, -0.5)))),
    PlacedLogprob(1, TokenLogprob(PART, -math.inf, ((A, -0.1), (B, -0.2)))),
)


def shape(form: Form) -> Shape:
    return Shape(form, "r", "model", 1, CODEC.spell)


def test_chat_gives_each_token_with_bytes_and_alternatives() -> None:
    body = shape(CHAT).whole("a", "stop", Timeline(0.0), PLACED)
    logprobs = ChatCompletion.model_validate_json(body, strict=True).choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    first, second = logprobs.content
    assert (first.token, first.bytes, first.logprob) == ("a", [97], -0.5)
    assert [(top.token, top.logprob) for top in first.top_logprobs] == [("b", -0.25), ("a", -0.5)]
    assert (second.token, second.bytes, second.logprob) == ("�", [0xF0], -9999.0)


def test_chunks_of_a_stream_have_them_too() -> None:
    chunk = shape(CHAT).text("a", PLACED[:1]).removeprefix(b"data: ")
    (choice,) = ChatCompletionChunk.model_validate_json(chunk, strict=True).choices
    assert choice.delta.content == "a"
    assert choice.finish_reason is None
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert [each.token for each in choice.logprobs.content] == ["a"]


def test_completions_give_lists_side_by_side() -> None:
    body = shape(COMPLETION).whole("a", "stop", Timeline(0.0), PLACED)
    logprobs = Completion.model_validate_json(body, strict=True).choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens == ["a", "�"]
    assert logprobs.text_offset == [0, 1]
    assert logprobs.token_logprobs == [-0.5, -9999.0]
    assert logprobs.top_logprobs == [
        {"b": -0.25, "a": -0.5},
        {"a": -0.1, "b": -0.2, "�": -9999.0},
    ]


def test_an_answer_without_a_token_has_an_empty_list_and_one_without_the_wish_null() -> None:
    asked = orjson.loads(shape(CHAT).whole("", "stop", Timeline(0.0), []))
    assert asked["choices"][0]["logprobs"] == {"content": [], "refusal": None}
    not_asked = orjson.loads(shape(CHAT).whole("", "stop", Timeline(0.0)))
    assert not_asked["choices"][0]["logprobs"] is None
