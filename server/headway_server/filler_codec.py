# SPDX-License-Identifier: Apache-2.0
"""The text side of the simulated runner: a tokenizer of bytes and a template of a few characters.

One token is one byte of UTF-8, so a load generator knows its token counts. There is no model
behind it: answers are small letters and spaces, and never end before their token limit.
"""

from collections.abc import Sequence
from string import ascii_lowercase

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from headway_server.text_codec import Message, TextCodec

END_OF_TURN = "<|end|>"
END_TOKEN_ID = 256
FILLER_VOCABULARY = END_TOKEN_ID + 1


def filler_codec() -> TextCodec:
    return TextCodec(_byte_tokenizer(), _render, frozenset({END_TOKEN_ID}), FILLER_VOCABULARY)


def not_filler() -> frozenset[int]:
    """The tokens that an answer has none of."""
    letters = _byte_tokenizer().encode(ascii_lowercase + " ").ids
    return frozenset(range(FILLER_VOCABULARY)) - frozenset(letters)


def _byte_tokenizer() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(END_OF_TURN, special=True, normalized=False)])
    return tokenizer


def _render(messages: Sequence[Message]) -> str:
    turns = [f"{message['role']}:{message['content']}{END_OF_TURN}" for message in messages]
    return "".join([*turns, "assistant:"])
