# SPDX-License-Identifier: Apache-2.0
"""Logprobs in the two forms that OpenAI's clients read."""

from collections.abc import Callable, Sequence
from typing import Any

from headway_server.text_codec import Spelling
from headway_server.token_logprobs import PlacedLogprob

Part = dict[str, Any]
Spell = Callable[[int], Spelling]

# What stands for a probability of zero: JSON has no infinity.
LOWEST = -9999.0


def chat_logprobs(placed: Sequence[PlacedLogprob], spell: Spell) -> Part:
    content = [
        {
            **_entry(each.logprob.token_id, each.logprob.logprob, spell),
            "top_logprobs": [_entry(*top, spell) for top in each.logprob.top],
        }
        for each in placed
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(placed: Sequence[PlacedLogprob], spell: Spell) -> Part:
    """The drawn token is among the top ones, whether it belongs there or not."""
    tokens = [spell(each.logprob.token_id).text for each in placed]
    own = [max(each.logprob.logprob, LOWEST) for each in placed]
    top = [
        {spell(token).text: max(value, LOWEST) for token, value in reversed(each.logprob.top)}
        | {text: logprob}
        for each, text, logprob in zip(placed, tokens, own, strict=True)
    ]
    return {
        "text_offset": [each.start for each in placed],
        "token_logprobs": own,
        "tokens": tokens,
        "top_logprobs": top,
    }


def _entry(token_id: int, logprob: float, spell: Spell) -> Part:
    spelling = spell(token_id)
    return {
        "token": spelling.text,
        "logprob": max(logprob, LOWEST),
        "bytes": list(spelling.utf8),
    }
