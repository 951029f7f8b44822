# SPDX-License-Identifier: Apache-2.0
"""Documents are allowed or not as their grammar says, and no grammar can stall the server."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, models

from headway_server.engine.messages import Sampling
from headway_server.filler_codec import END_TOKEN_ID, FILLER_VOCABULARY, _byte_tokenizer
from headway_server.runner.grammar import (
    BYTES_MAX,
    DEPTH_MAX,
    Grammar,
    GrammarCompiler,
    GrammarMatcher,
    GrammarRefused,
)
from headway_server.runner.grammar_check import GrammarCheck
from headway_server.runner.protocol import Row
from headway_server.runner.sampling import sample

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 30},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


class Vocabulary:
    def __init__(self, tokenizer: Tokenizer, size: int, end: int, check: GrammarCheck) -> None:
        self.tokenizer = tokenizer
        self.size = size
        self.end = end
        self.compiler = GrammarCompiler(tokenizer, size, frozenset({end}), check)

    def matcher(self, kind: Any, grammar: Any) -> GrammarMatcher:
        text = grammar if isinstance(grammar, str) else json.dumps(grammar)
        return self.compiler.compile(Grammar(kind, text))

    def mask(self, matcher: GrammarMatcher) -> NDArray[np.bool_]:
        words = np.zeros(-(-self.size // 32), np.int32)
        matcher.fill(words)
        return np.unpackbits(words.view(np.uint8), bitorder="little")[: self.size].view(np.bool_)

    def takes(self, kind: Any, grammar: Any, text: str) -> bool:
        """Whether the text's tokens, and then the end, are allowed one after the other."""
        matcher = self.matcher(kind, grammar)
        for token in [*self.tokenizer.encode(text).ids, self.end]:
            if not self.mask(matcher)[token]:
                return False
            assert matcher.accept(token)
        return True


@pytest.fixture(scope="module")
def check() -> GrammarCheck:
    return GrammarCheck(seconds=60)


@pytest.fixture(scope="module")
def letters(check: GrammarCheck) -> Vocabulary:
    """A vocabulary of bytes."""
    return Vocabulary(_byte_tokenizer(), FILLER_VOCABULARY, END_TOKEN_ID, check)


@pytest.fixture(scope="module")
def words(check: GrammarCheck, smollm2: Path) -> Vocabulary:
    """The vocabulary of a real model."""
    tokenizer = Tokenizer.from_file(str(smollm2 / "tokenizer.json"))
    return Vocabulary(tokenizer, 49152, 2, check)


@pytest.fixture(params=["letters", "words"])
def vocabulary(request: pytest.FixtureRequest) -> Vocabulary:
    chosen: Vocabulary = request.getfixturevalue(request.param)
    return chosen


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Ann", "age": 3}',
        '{"name":"","age":0,"tags":["a","b"]}',
        '{\n  "name": "\U0001fae0 한국어 \U0001f469‍\U0001f469‍\U0001f467",\n  "age": 150\n}',
        '{"name": "a\\"b\\\\c\\n", "age": 77}',
    ],
)
def test_valid_documents_are_allowed(vocabulary: Vocabulary, text: str) -> None:
    json.loads(text)
    assert vocabulary.takes("json", PERSON, text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Sure! {",
        "[]",
        '{"name": "Ann"}',
        '{"age": 3}',
        '{"name": "Ann", "age": 151}',
        '{"name": "Ann", "age": -1}',
        '{"name": "Ann", "age": 1.5}',
        '{"name": 5, "age": 3}',
        '{"name": "Ann", "age": 3, "more": 1}',
        '{"name": "Ann", "age": 3, "tags": ["c"]}',
        '{"name": "Ann", "age": 3, "tags": ["a", "b", "a"]}',
        '{"name": "Ann", "age": 3} and more',
        '{"name": "Ann", "age": 3',
        '{"name": "a\nb", "age": 3}',
        '{"name": "' + "x" * 31 + '", "age": 3}',
    ],
)
def test_invalid_documents_are_not(vocabulary: Vocabulary, text: str) -> None:
    assert not vocabulary.takes("json", PERSON, text)


def test_any_json_object_is_an_object(vocabulary: Vocabulary) -> None:
    schema = {"type": "object"}
    assert vocabulary.takes("json", schema, '{"a": [1, null, {"b": "c"}]}')
    assert not vocabulary.takes("json", schema, "[1]")


def test_regular_expressions_and_lark(vocabulary: Vocabulary) -> None:
    assert vocabulary.takes("regex", r"[a-z]{2,4}@[a-z]+\.org", "abc@site.org")
    assert not vocabulary.takes("regex", r"[a-z]{2,4}@[a-z]+\.org", "abcde@site.org")
    lark = 'start: "move " DIRECTION (" and " DIRECTION)*\nDIRECTION: "left" | "right"'
    assert vocabulary.takes("lark", lark, "move left and right")
    assert not vocabulary.takes("lark", lark, "move up")


def test_the_end_is_allowed_exactly_where_the_grammar_is_complete(vocabulary: Vocabulary) -> None:
    matcher = vocabulary.matcher("regex", "ab(ab)?")
    seen = []
    for token in vocabulary.tokenizer.encode("a").ids + vocabulary.tokenizer.encode("b").ids:
        seen.append(bool(vocabulary.mask(matcher)[vocabulary.end]))
        matcher.accept(token)
    assert [*seen, bool(vocabulary.mask(matcher)[vocabulary.end])] == [False, False, True]
    for letter in "ab":
        matcher.accept(vocabulary.tokenizer.encode(letter).ids[0])
    assert np.flatnonzero(vocabulary.mask(matcher)).tolist() == [vocabulary.end]


def test_white_space_is_bounded(letters: Vocabulary) -> None:
    assert letters.takes("json", PERSON, '{"name":' + " " * 20 + '"x", "age": 3}')
    assert not letters.takes("json", PERSON, '{"name":' + " " * 21 + '"x", "age": 3}')


def test_answers_of_one_grammar_go_their_own_ways(letters: Vocabulary) -> None:
    first, second = (letters.matcher("regex", "ab|cd") for _ in range(2))
    assert first.accept(letters.tokenizer.encode("a").ids[0])
    assert second.accept(letters.tokenizer.encode("c").ids[0])


def nested(levels: int) -> Any:
    schema: Any = {"type": "integer"}
    for _ in range(levels):
        schema = {"items": schema, "type": "array"}
    return schema


def laughs(levels: int) -> Any:
    """Each level is two of the one below."""
    schema: Any = {"$defs": {"l0": {"pattern": "^x*$"}}, "type": "string"}
    for level in range(1, levels):
        both = [{"$ref": f"#/$defs/l{level - 1}"}, {"pattern": f"a.{{{level}}}b"}]
        schema["$defs"][f"l{level}"] = {"allOf": both}
    return {**schema, "$ref": f"#/$defs/l{levels - 1}"}


@pytest.mark.parametrize(
    ("kind", "grammar", "words"),
    [
        ("json", {"type": "objekt"}, "objekt"),
        ("json", [], "JSON object"),
        ("json", "{", "valid JSON"),
        ("json", {"not": {}}, "not"),
        ("json", {"type": "string", "pattern": "("}, "unclosed"),
        ("json", {"$ref": "http://localhost:1/schema"}, "retriev"),
        ("json", {"type": "integer", "minimum": 5, "maximum": 1}, "minimum"),
        ("json", nested(DEPTH_MAX), f"the {DEPTH_MAX} levels"),
        ("json", nested(300), f"the {DEPTH_MAX} levels"),
        ("json", {"enum": ["x" * BYTES_MAX]}, f"at most {BYTES_MAX}"),
        ("json", {"properties": {f"k{i}": {} for i in range(401)}}, "at most 400 are allowed"),
        ("regex", "(", "unclosed"),
        ("regex", "(?=x)a", "look-around"),
        ("lark", 'start: "a" x', "unknown name"),
        ("lark", "", ""),
    ],
)
def test_wrong_grammars_are_refused_in_a_sentence(
    letters: Vocabulary, kind: Any, grammar: Any, words: str
) -> None:
    with pytest.raises(GrammarRefused) as refused:
        letters.matcher(kind, grammar)
    message = str(refused.value)
    assert words in message
    assert "\n" not in message
    assert 10 < len(message) < 400


def test_a_grammar_that_would_compile_for_minutes_is_broken_off() -> None:
    check = GrammarCheck(seconds=0.5)
    vocabulary = Vocabulary(_byte_tokenizer(), FILLER_VOCABULARY, END_TOKEN_ID, check)
    patterns = [{"type": "string", "pattern": f".*a.{{{i}}}b.*"} for i in range(22)]
    for hostile in ({"allOf": patterns}, laughs(25)):
        with pytest.raises(GrammarRefused):
            vocabulary.matcher("json", hostile)
    patient = GrammarCompiler(
        _byte_tokenizer(), FILLER_VOCABULARY, frozenset({END_TOKEN_ID}), GrammarCheck(60)
    )
    assert patient.compile(Grammar("json", json.dumps(PERSON)))


def test_a_grammar_that_cannot_go_on_allows_only_what_it_does_not_accept(
    letters: Vocabulary,
) -> None:
    matcher = letters.matcher("regex", "ab")
    assert not matcher.accept(letters.tokenizer.encode("x").ids[0])
    (allowed,) = np.flatnonzero(letters.mask(matcher))
    assert allowed != letters.end
    assert not matcher.accept(int(allowed))


@pytest.mark.parametrize("end", [frozenset[int](), frozenset({0})])
def test_a_tokenizer_of_another_kind_has_no_grammars(end: frozenset[int]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  the library's words
        GrammarCompiler(Tokenizer(models.BPE()), 0, end)


def test_tokens_are_spelled_in_bytes(words: Vocabulary) -> None:
    tokens = words.tokenizer.encode(" Grüße \U0001fae0").ids
    assert b"".join(map(words.compiler.spell, tokens)).decode() == " Grüße \U0001fae0"


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_random_logits_make_valid_documents(letters: Vocabulary, temperature: float) -> None:
    """Through the sampler, neighbours without a grammar beside it."""
    generator = torch.Generator().manual_seed(2)
    for seed in range(5):
        matcher = letters.matcher("json", PERSON)
        tokens: list[int] = []
        while END_TOKEN_ID not in tokens:
            logits = torch.randn(2, FILLER_VOCABULARY, generator=generator)
            sampling = Sampling(temperature, seed=seed)
            banned = frozenset({END_TOKEN_ID} if len(tokens) < 40 else ())
            rows = [
                Row("free", (1,), 9, (0,), True, Sampling()),
                Row("r", (1,), len(tokens), (0,), True, sampling, matcher=matcher, banned=banned),
            ]
            free, token = sample(logits, rows).tokens
            assert free == logits[0].argmax()
            assert token is not None
            assert matcher.accept(token)
            tokens.append(token)
        document = json.loads(letters.tokenizer.decode(tokens[:-1]))
        assert {"name", "age"} <= set(document) <= {"name", "age", "tags"}
        assert 0 <= document["age"] <= 150
