# SPDX-License-Identifier: Apache-2.0
"""The objects OpenAI's clients read: whole answers, and the chunks of a stream as ready bytes.

A chunk is sent per token, so it is serialised once per answer, with a hole for the text.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import orjson

from headway_server.accounting import Timeline
from headway_server.api.logprob_shapes import Part, Spell, chat_logprobs, completion_logprobs
from headway_server.token_logprobs import PlacedLogprob

HOLE = "\0"
END_OF_STREAM = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Form:
    """Where one kind of answer differs from another. The parts belong into a choice."""

    id_prefix: str
    whole_object: str
    chunk_object: str
    whole: Callable[[str], Part]
    opening: Part | None
    text: Callable[[str], Part]
    closing: Part
    logprobs: Callable[[Sequence[PlacedLogprob], Spell], Part]


CHAT = Form(
    id_prefix="chatcmpl",
    whole_object="chat.completion",
    chunk_object="chat.completion.chunk",
    whole=lambda text: {"message": {"role": "assistant", "content": text, "refusal": None}},
    opening={"delta": {"role": "assistant", "content": ""}},
    text=lambda text: {"delta": {"content": text}},
    closing={"delta": {}},
    logprobs=chat_logprobs,
)
COMPLETION = Form(
    id_prefix="cmpl",
    whole_object="text_completion",
    chunk_object="text_completion",
    whole=lambda text: {"text": text},
    opening=None,
    text=lambda text: {"text": text},
    closing={"text": ""},
    logprobs=completion_logprobs,
)


class Shape:
    """One answer in its form. With `usage` the stream ends with a chunk of counts, and every
    other chunk says that its usage is null."""

    def __init__(
        self,
        form: Form,
        request_id: str,
        model: str,
        created: int,
        spell: Spell,
        usage: bool = False,
    ) -> None:
        self._form = form
        self._spell = spell
        self._head = {"id": f"{form.id_prefix}-{request_id}", "created": created, "model": model}
        self._usage = usage
        chunk = self._chunk(form.text(HOLE), None)
        self._before, self._after = chunk.split(orjson.dumps(HOLE))

    def whole(
        self,
        text: str,
        finish_reason: str,
        timeline: Timeline,
        logprobs: Sequence[PlacedLogprob] | None = None,
    ) -> bytes:
        choice = _choice(self._form.whole(text), finish_reason, self._logprobs(logprobs))
        head = {**self._head, "object": self._form.whole_object}
        return orjson.dumps({**head, "choices": [choice], "usage": _usage(timeline)})

    def opening(self) -> bytes:
        return self._chunk(self._form.opening, None) if self._form.opening else b""

    def text(self, text: str, logprobs: Sequence[PlacedLogprob] | None = None) -> bytes:
        if logprobs:
            return self._chunk(self._form.text(text), None, self._logprobs(logprobs))
        return self._before + orjson.dumps(text) + self._after

    def closing(self, finish_reason: str, timeline: Timeline) -> bytes:
        chunk = self._chunk(self._form.closing, finish_reason)
        counts = self._event({"choices": [], "usage": _usage(timeline)}) if self._usage else b""
        return chunk + counts + END_OF_STREAM

    def _chunk(self, part: Part, finish_reason: str | None, logprobs: Part | None = None) -> bytes:
        usage = {"usage": None} if self._usage else {}
        return self._event({"choices": [_choice(part, finish_reason, logprobs)], **usage})

    def _logprobs(self, placed: Sequence[PlacedLogprob] | None) -> Part | None:
        return None if placed is None else self._form.logprobs(placed, self._spell)

    def _event(self, content: Part) -> bytes:
        return sse_event({**self._head, "object": self._form.chunk_object, **content})


def sse_event(content: Part) -> bytes:
    return b"data: " + orjson.dumps(content) + b"\n\n"


def _choice(part: Part, finish_reason: str | None, logprobs: Part | None) -> Part:
    return {"index": 0, **part, "logprobs": logprobs, "finish_reason": finish_reason}


def _usage(timeline: Timeline) -> dict[str, int]:
    return {
        "prompt_tokens": timeline.prompt_tokens,
        "completion_tokens": timeline.generated_tokens,
        "total_tokens": timeline.prompt_tokens + timeline.generated_tokens,
    }
