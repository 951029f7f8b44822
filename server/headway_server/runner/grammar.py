# SPDX-License-Identifier: Apache-2.0
"""Grammars that answers must follow, compiled by llguidance for one model's vocabulary.

A grammar is refused before the request is queued: too large, too deep, too slow, or wrong. The end
of an answer is allowed exactly where the grammar is complete.
"""

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal

import numpy as np
import orjson
from llguidance import LLMatcher, LLTokenizer
from numpy.typing import NDArray
from tokenizers import Tokenizer

from headway_server.runner.grammar_check import GrammarCheck, parser_limits

BYTES_MAX = 65_536
DEPTH_MAX = 32
NAMES_MAX = 400
COMPILED_KEPT = 64
# Bounded, because small models are fond of white space without end.
JSON_OPTIONS: Any = {"whitespace_pattern": r"[ \n\t]{1,20}"}

Kind = Literal["json", "regex", "lark"]


@dataclass(frozen=True, slots=True)
class Grammar:
    """`text` is a JSON schema, a regular expression or a grammar in Lark's notation."""

    kind: Kind
    text: str


class GrammarRefused(ValueError):
    """The message says why, for whoever wrote the grammar."""


class GrammarMatcher:
    """One answer's place in its grammar.

    A grammar that cannot go on, because a limit was passed, allows `refuge` alone, which it does
    not accept: that ends the request with an error.
    """

    def __init__(self, matcher: LLMatcher, refuge: int) -> None:
        self._matcher = matcher
        self._refuge = refuge

    def fill(self, mask: NDArray[np.int32]) -> None:
        if not self._matcher.is_error():
            self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        if self._matcher.is_error():
            mask[:] = 0
            mask[self._refuge // 32] = np.int32(1) << np.int32(self._refuge % 32)

    def accept(self, token: int) -> bool:
        accepted: bool = self._matcher.consume_token(token)
        return accepted


class GrammarCompiler:
    """Calls take milliseconds, up to the seconds of `check`: keep them off the event loop.

    Raises ValueError if the tokenizer is of a kind that llguidance does not know, or no token
    ends an answer.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        vocab_size: int,
        end_token_ids: frozenset[int],
        check: GrammarCheck | None = None,
    ) -> None:
        if not end_token_ids:
            raise ValueError("no token ends an answer of this model")
        plain = Tokenizer.from_str(tokenizer.to_str())
        plain.no_padding()
        plain.no_truncation()
        self._tokenizer = LLTokenizer(
            plain.to_str(), n_vocab=vocab_size, eos_token=sorted(end_token_ids)
        )
        self._mask_words = -(-vocab_size // 32)
        self._refuge = next(i for i in range(vocab_size + 1) if i not in end_token_ids)
        self._check = check or GrammarCheck()
        self._lock = Lock()
        self._compiled: OrderedDict[Grammar, LLMatcher] = OrderedDict()

    def compile(self, grammar: Grammar) -> GrammarMatcher:
        """Raises GrammarRefused."""
        with self._lock:
            matcher = self._compiled.pop(grammar, None) or self._new(grammar)
            self._compiled[grammar] = matcher
            if len(self._compiled) > COMPILED_KEPT:
                self._compiled.popitem(last=False)
            return GrammarMatcher(matcher.deep_copy(), self._refuge)

    def spell(self, token_id: int) -> bytes:
        """The bytes that a token stands for."""
        spelled: bytes = self._tokenizer.decode_bytes([token_id])
        return spelled

    def _new(self, grammar: Grammar) -> LLMatcher:
        source = _source_of(grammar)
        if fault := self._check.fault(source):
            raise GrammarRefused(_one_line(fault))
        matcher = LLMatcher(self._tokenizer, source, log_level=0, limits=parser_limits())
        if not matcher.is_error():
            mask = np.zeros(self._mask_words, np.int32)
            matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        if matcher.is_error():
            raise GrammarRefused(_one_line(matcher.get_error()))
        return matcher


def _source_of(grammar: Grammar) -> str:
    size = len(grammar.text.encode())
    if size > BYTES_MAX:
        raise GrammarRefused(f"it has {size} bytes; at most {BYTES_MAX} are allowed")
    source: str
    match grammar.kind:
        case "json":
            _check_shape(_object(grammar.text))
            source = LLMatcher.grammar_from_json_schema(grammar.text, overrides=JSON_OPTIONS)
        case "regex":
            source = LLMatcher.grammar_from_regex(grammar.text)
        case "lark":
            source = LLMatcher.grammar_from_lark(grammar.text)
    return source


def _object(schema: str) -> Any:
    try:
        parsed = orjson.loads(schema)
    except orjson.JSONDecodeError as error:
        raise GrammarRefused(f"it is not valid JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise GrammarRefused("it must be a JSON object")
    return parsed


def _check_shape(schema: Any) -> None:
    """Raises GrammarRefused where one of llguidance's own limits would be passed later."""
    level, depth = [schema], 0
    while level:
        depth += 1
        if depth > DEPTH_MAX:
            raise GrammarRefused(f"it is nested more than the {DEPTH_MAX} levels allowed")
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict) and len(each) > NAMES_MAX:
                raise GrammarRefused(
                    f"an object in it has {len(each)} names; at most {NAMES_MAX} are allowed"
                )
            inner += each.values() if isinstance(each, dict) else each
        level = [each for each in inner if isinstance(each, dict | list)]


def _one_line(fault: str) -> str:
    """Without the pictures that point into a grammar."""
    lines = [line.strip() for line in fault.replace("<non-verbose/>", "").splitlines()]
    telling = [line for line in lines if line.strip("^ |") and " | " not in line]
    return "; ".join(telling)[:300] or "it does not compile"
