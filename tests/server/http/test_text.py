# SPDX-License-Identifier: Apache-2.0
"""Text as it streams: whole characters, no part of a stop string, no control tokens by hand."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models

from headway_server.detokenise import Detokeniser
from headway_server.filler_codec import END_OF_TURN, END_TOKEN_ID, filler_codec
from headway_server.problem import Problem
from headway_server.stop_strings import StopStrings
from headway_server.text_codec import Message, TemplateRefused, TextCodec

CODEC = filler_codec()

few_letters = st.text("abc", max_size=30)
stops_of_few_letters = st.lists(st.text("abc", min_size=1, max_size=5), max_size=4).map(tuple)


def cut_by_hand(text: str, stops: tuple[str, ...]) -> str:
    """What one sees who reads character by character and stops at the first whole stop string."""
    for end in range(len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            return text[: end - max(map(len, ended))]
    return text


@settings(deadline=None)
@given(few_letters, stops_of_few_letters, st.lists(st.integers(1, 4)))
@example("abcab", ("cab", "bcabx"), [1, 1, 1, 1, 1])
def test_what_is_shown_does_not_depend_on_the_pieces(
    text: str, stops: tuple[str, ...], sizes: list[int]
) -> None:
    matcher, shown, rest = StopStrings(stops), "", text
    for size in [*sizes, len(text)]:
        shown += matcher.feed(rest[:size])
        rest = rest[size:]
    assert cut_by_hand(text, stops).startswith(shown)
    shown += matcher.flush()
    assert shown == cut_by_hand(text, stops)
    assert matcher.matched == any(stop in text for stop in stops)


def test_only_what_may_become_a_stop_string_is_held_back() -> None:
    matcher = StopStrings(("DEFGHIJ",))
    assert matcher.feed("ABCD") == "ABC"
    assert matcher.feed("EFG") == ""
    assert matcher.feed("X") == "DEFGX"
    assert matcher.feed("D") == ""
    assert matcher.flush() == "D"


@settings(deadline=None)
@given(st.text())
@example("\U0001fae0 한국어 \U0001f469‍\U0001f469‍\U0001f467 é")
def test_characters_come_whole(text: str) -> None:
    detokeniser = CODEC.detokeniser()
    pieces = [detokeniser.feed(token) for token in CODEC.encode_text(text)]
    pieces.append(detokeniser.flush())
    assert "".join(pieces) == text
    assert all("�" not in piece for piece in pieces) or "�" in text


def test_character_cut_by_the_token_limit_comes_once() -> None:
    detokeniser = CODEC.detokeniser()
    tokens = CODEC.encode_text("a\U0001fae0")[:-1]
    assert "".join(map(detokeniser.feed, tokens)) == "a"
    assert detokeniser.flush() == "�"


def test_special_tokens_have_no_text() -> None:
    detokeniser = CODEC.detokeniser()
    assert detokeniser.feed(END_TOKEN_ID) + detokeniser.flush() == ""


def byte_fallback_tokenizer() -> Tokenizer:
    """Like those of the Llama 2 family: bytes are tokens, and are decoded a run at a time."""
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"x": 256}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


@settings(deadline=None)
@given(st.lists(st.integers(0, 256), max_size=40))
@example([*b"A\xff", 256])
def test_bytes_that_are_no_text_never_fail(tokens: list[int]) -> None:
    detokeniser = Detokeniser(byte_fallback_tokenizer())
    text = "".join(map(detokeniser.feed, tokens)) + detokeniser.flush()
    assert text.count("x") >= tokens.count(256)


def test_template_puts_the_messages_between_control_tokens() -> None:
    tokens = CODEC.encode_chat([{"role": "user", "content": "hi"}])
    assert tokens.count(END_TOKEN_ID) == 1


@pytest.mark.parametrize(
    "content", [END_OF_TURN, f"a{END_OF_TURN}b", END_OF_TURN * 2, f"<|end{END_OF_TURN}|>"]
)
def test_control_tokens_in_a_message_are_plain_text(content: str) -> None:
    tokens = CODEC.encode_chat([{"role": "user", "content": content}])
    assert tokens.count(END_TOKEN_ID) == 1
    spelled = len(content.encode())
    assert len(tokens) == len("user:") + spelled + 1 + len("assistant:")


def test_control_tokens_that_overlap_are_plain_text() -> None:
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate("<|ab>")}, merges=[]))
    tokenizer.add_special_tokens(
        [AddedToken("<|a|>", special=True), AddedToken("|>b", special=True)]
    )
    codec = TextCodec(tokenizer, lambda each: each[0]["content"], frozenset(), 7)
    assert set(codec.encode_chat([{"role": "user", "content": "<|a|>b"}])) <= set(range(5))


def test_completion_prompts_are_raw() -> None:
    assert CODEC.encode_text(END_OF_TURN) == (END_TOKEN_ID,)


def failing_with(error: Exception) -> TextCodec:
    def template(messages: Sequence[Message]) -> str:
        raise error

    return TextCodec(Tokenizer(models.BPE()), template, frozenset(), 1)


def test_refusal_of_a_template_is_told_in_its_words() -> None:
    codec = failing_with(TemplateRefused("roles must alternate"))
    with pytest.raises(Problem, match="roles must alternate") as problem:
        codec.encode_chat([{"role": "user", "content": "x"}])
    assert (problem.value.status, problem.value.code) == (400, "chat_template_error")


@pytest.mark.parametrize("error", [TypeError("0xbeef"), KeyError("x"), ZeroDivisionError()])
def test_failure_of_a_template_is_told_in_ours(error: Exception) -> None:
    with pytest.raises(Problem) as problem:
        failing_with(error).encode_chat([{"role": "user", "content": "x"}])
    assert problem.value.status == 400
    assert "0xbeef" not in problem.value.message


def test_model_without_a_template_points_to_completions() -> None:
    codec = TextCodec(Tokenizer(models.BPE()), None, frozenset(), 1)
    with pytest.raises(Problem, match="/v1/completions"):
        codec.encode_chat([{"role": "user", "content": "x"}])
