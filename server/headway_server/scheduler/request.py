# SPDX-License-Identifier: Apache-2.0
"""One request as the scheduler sees it: counts and times, no token ids."""

from dataclasses import dataclass


@dataclass(slots=True)
class Request:
    """`computed` counts prompt tokens whose KV exists, `generated` the output tokens so far."""

    request_id: str
    workload: str
    tenant: str
    prompt_tokens: int
    max_new_tokens: int
    arrival: float
    deadline: float | None = None
    computed: int = 0
    generated: int = 0
    admitted_at: float | None = None
    prompt_group: int = 0
    expected_output: int = 0

    @property
    def reserve(self) -> int:
        """Tokens held from admission to the end. All of the output is reserved, so that a running
        request never has to be preempted for want of KV."""
        return self.prompt_tokens + self.max_new_tokens

    @property
    def prompt_left(self) -> int:
        return self.prompt_tokens - self.computed
