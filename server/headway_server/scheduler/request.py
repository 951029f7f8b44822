# SPDX-License-Identifier: Apache-2.0
"""One request as the scheduler sees it: counts and times, no token ids."""

from dataclasses import dataclass

# From then on all of the answer is reserved, so that the request cannot be preempted any more.
MOST_PREEMPTIONS = 2


@dataclass(slots=True, eq=False)
class Request:
    """`computed` counts tokens whose KV exists, `generated` output tokens; both run ahead of the
    device by the steps that were launched, `settled` (output tokens) does not.

    replayed: output tokens that are computed again with the prompt, after a preemption.
    expected_output, reserved_output: tokens of the whole answer. charged: see `queue`.
    place: the order in which the workload's requests came.
    """

    request_id: str
    workload: str
    tenant: str
    prompt_tokens: int
    max_new_tokens: int
    arrival: float
    deadline: float | None = None
    prompt_group: int = 0
    computed: int = 0
    generated: int = 0
    admitted_at: float | None = None
    expected_output: int = 0
    reserved_output: int = 0
    preemptions: int = 0
    cached_tokens: int = 0
    settled: int = 0
    replayed: int = 0
    charged: int = 0
    place: int = 0

    @property
    def largest(self) -> int:
        """Tokens that it comes to if it is not stopped early."""
        return self.prompt_tokens + self.max_new_tokens

    @property
    def reserve(self) -> int:
        """Tokens held while it runs."""
        return self.prompt_tokens + self.reserved_output

    @property
    def prompt_left(self) -> int:
        return max(0, self.prompt_tokens + self.replayed - self.computed)

    @property
    def context(self) -> int:
        return self.prompt_tokens + self.generated

    @property
    def may_be_preempted(self) -> bool:
        return self.preemptions < MOST_PREEMPTIONS

    @property
    def lost_if_preempted(self) -> int:
        """Tokens whose computation would have to be repeated."""
        return self.computed - self.cached_tokens

    def lose_place(self) -> None:
        """Its KV is gone; prompt and answer so far are computed anew when it runs again."""
        self.preemptions += 1
        self.replayed = self.generated
        self.computed = 0
