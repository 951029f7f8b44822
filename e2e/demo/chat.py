# SPDX-License-Identifier: Apache-2.0
"""A question to the pool through the official OpenAI client, answered token by token."""

from collections.abc import Iterator

from openai import OpenAI


def stream_answer(url: str, model: str, question: str, max_tokens: int = 48) -> Iterator[str]:
    client = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    with client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": question}],
        max_tokens=max_tokens,
        temperature=0,
        stream=True,
    ) as chunks:
        for chunk in chunks:
            if chunk.choices and chunk.choices[0].delta.content:
                yield chunk.choices[0].delta.content
