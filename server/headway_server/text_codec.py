# SPDX-License-Identifier: Apache-2.0
"""Text to token ids and back, for one model: its tokenizer, its chat template, its end tokens.

Everything here may take milliseconds: call it off the event loop. Chat templates are rendered by
transformers, in its sandbox. Text that a client puts into a message never becomes a control token;
the prompt of a plain completion is raw on purpose, so there it does.
"""

import logging
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from headway_server.detokenise import Detokeniser
from headway_server.problem import Problem
from headway_server.runner.grammar import (
    Grammar,
    GrammarCompiler,
    GrammarMatcher,
    GrammarRefused,
)

log = logging.getLogger(__name__)

Message = dict[str, str]
Template = Callable[[Sequence[Message]], str]


class TemplateRefused(Exception):
    """The template itself refused the messages; the text is the template author's."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """A token by itself. Where its bytes are part of a character only, `text` shows that."""

    text: str
    utf8: bytes


class TextCodec:
    """`template` renders messages with the opening of the answer; None: a model without one.

    `vocab_size` is the width of the logits: token ids below it are valid.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: Template | None,
        end_token_ids: frozenset[int],
        vocab_size: int,
    ) -> None:
        self.end_token_ids = end_token_ids
        self.vocab_size = vocab_size
        self._tokenizer = tokenizer
        self._template = template
        self._control_text = _pattern_of_specials(tokenizer)

    def encode_text(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text).ids)

    def encode_chat(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Raises Problem where the template refuses the messages or there is none."""
        if self._template is None:
            raise Problem(
                400, "This model has no chat template. Use /v1/completions.", param="messages"
            )
        cut = f"\ue000{secrets.token_hex(8)}\ue001"
        rendered = self._render(self._template, [self._defuse(each, cut) for each in messages])
        return tuple(
            token_id
            for part in rendered.split(cut)
            for token_id in self._tokenizer.encode(part, add_special_tokens=False).ids
        )

    def detokeniser(self) -> Detokeniser:
        return Detokeniser(self._tokenizer)

    @cached_property
    def grammars(self) -> GrammarCompiler | None:
        """Takes up to a second to make, once; None where the tokenizer is of an unknown kind."""
        try:
            return GrammarCompiler(self._tokenizer, self.vocab_size, self.end_token_ids)
        except ValueError as error:
            log.warning("no structured output with this model: %s", error)
            return None

    def matcher(self, grammar: Grammar) -> GrammarMatcher:
        """Raises GrammarRefused."""
        if self.grammars is None:
            raise GrammarRefused("this model's tokenizer does not allow structured output")
        return self.grammars.compile(grammar)

    def spell(self, token_id: int) -> Spelling:
        if self.grammars is not None:
            utf8 = self.grammars.spell(token_id)
        else:
            utf8 = self._tokenizer.decode([token_id], skip_special_tokens=False).encode()
        return Spelling(utf8.decode(errors="replace"), utf8)

    def _render(self, template: Template, messages: Sequence[Message]) -> str:
        try:
            return template(messages)
        except TemplateRefused as refusal:
            raise Problem(
                400,
                f"The model's chat template refuses these messages: {refusal}",
                code="chat_template_error",
                param="messages",
            ) from refusal
        except (TypeError, ValueError, LookupError, ArithmeticError) as error:
            raise Problem(
                400,
                "The model's chat template cannot render these messages. "
                "Try plain user and assistant turns, starting with the user.",
                code="chat_template_error",
                param="messages",
            ) from error

    def _defuse(self, message: Message, cut: str) -> Message:
        """Marks a place inside each control token that a client wrote out, to encode it in two."""
        if self._control_text is None:
            return message
        return {
            name: self._control_text.sub(lambda match: match[0] + cut, value)
            for name, value in message.items()
        }


def load_codec(folder: Path, end_token_ids: frozenset[int], vocab_size: int) -> TextCodec:
    """The codec of a model folder. Raises OSError or ValueError if it has no usable tokenizer."""
    from transformers import AutoTokenizer

    loaded: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if not loaded.is_fast:
        raise ValueError(f"the tokenizer in {folder} has no tokenizer.json")
    template = _sandboxed(loaded) if loaded.chat_template else None
    end = {loaded.eos_token_id} - {None}
    codec = TextCodec(loaded.backend_tokenizer, template, end_token_ids | end, vocab_size)
    log.debug("structured output: %s", codec.grammars is not None)
    return codec


def _sandboxed(loaded: Any) -> Template:
    from jinja2 import TemplateError

    def render(messages: Sequence[Message]) -> str:
        try:
            text: str = loaded.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=True
            )
        except TemplateError as error:
            raise TemplateRefused(str(error)) from error
        return text

    return render


def _pattern_of_specials(tokenizer: Tokenizer) -> re.Pattern[str] | None:
    """Matches the first character of every special token written out, also where two overlap."""
    specials = [
        token.content
        for token in tokenizer.get_added_tokens_decoder().values()
        if token.special and len(token.content) > 1
    ]
    if not specials:
        return None
    return re.compile(f"(?={'|'.join(map(re.escape, specials))})(?s:.)")
