# SPDX-License-Identifier: Apache-2.0
"""Token ids to text as they come, never a part of a character.

A character whose bytes are spread over several tokens is released when it is whole; what is left
when an answer ends in the middle of one comes with `flush`, once.
"""

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream


class Detokeniser:
    """One answer's text; special tokens have none."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._restart()

    def feed(self, token_id: int) -> str:
        """The text that became whole with this token."""
        self._token_ids.append(token_id)
        try:
            piece = self._stream.step(self._tokenizer, token_id) or ""
        except Exception:  # noqa: BLE001  the library raises nothing narrower
            # Byte-fallback decoders judge a run of bytes as a whole, so that bytes which are no
            # UTF-8 take back characters already released. What was released stays.
            self._restart()
            self._token_ids.append(token_id)
            piece = self._stream.step(self._tokenizer, token_id) or ""
        self._released += len(piece)
        return piece

    def flush(self) -> str:
        text: str = self._tokenizer.decode(self._token_ids, skip_special_tokens=True)
        return text[self._released :]

    def _restart(self) -> None:
        self._stream = DecodeStream(skip_special_tokens=True)
        self._token_ids: list[int] = []
        self._released = 0
