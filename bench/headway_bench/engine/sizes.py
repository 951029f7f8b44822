# SPDX-License-Identifier: Apache-2.0
"""How large each measurement is. `QUICK` shows that everything runs; its figures say little."""

from dataclasses import dataclass, replace

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Lengths in tokens, spans with both ends.

    requests: how many mixed requests the engine and its peers serve at once.
    decode_*: the batch of equal requests whose decode step is held against the matmul limit.
    running, waiting, workloads, tenants: what the scheduler has to do with; one figure per entry
    of `waiting`, the named one is for `waiting[1]`.
    chats, long_*: short requests, one after another, beside long prompts of a lower priority.
    prefix_*: prompts of which 90 % are sent a second time.
    """

    repeats: int = 3
    batches: tuple[int, ...] = (1, 8, 32, 64)
    requests: int = 32
    prompt_tokens: Span = (16, 384)
    output_tokens: Span = (8, 192)
    decode_rows: int = 32
    decode_prompt: int = 128
    decode_steps: int = 32
    running: int = 256
    waiting: tuple[int, ...] = (100, 1_000, 10_000)
    workloads: int = 8
    tenants: int = 50
    scheduler_steps: int = 400
    chats: int = 16
    chat_prompt: int = 64
    chat_output: int = 4
    long_prompt: int = 8_000
    long_requests: int = 2
    prefix_prompt: int = 1_024
    prefix_pairs: int = 3

    def fitted(self, context_length: int) -> "Sizes":
        """The same, with the lengths cut to what the model's context holds."""
        prompt = context_length // 2
        output = context_length // 4
        return replace(
            self,
            prompt_tokens=capped(self.prompt_tokens, prompt),
            output_tokens=capped(self.output_tokens, output),
            decode_prompt=min(self.decode_prompt, prompt),
            decode_steps=min(self.decode_steps, output),
            chat_prompt=min(self.chat_prompt, prompt),
            chat_output=min(self.chat_output, output),
            long_prompt=min(self.long_prompt, context_length - 16),
            prefix_prompt=min(self.prefix_prompt, context_length - 16),
        )


FULL = Sizes()
QUICK = Sizes(
    repeats=1,
    batches=(1, 8),
    requests=8,
    prompt_tokens=(8, 32),
    output_tokens=(4, 12),
    decode_prompt=16,
    decode_steps=8,
    scheduler_steps=20,
    chats=4,
    chat_prompt=16,
    chat_output=2,
    long_prompt=1_000,
    long_requests=2,
    prefix_prompt=128,
    prefix_pairs=2,
)


def capped(span: Span, limit: int) -> Span:
    return min(span[0], limit), min(span[1], limit)
