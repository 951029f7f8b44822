# SPDX-License-Identifier: Apache-2.0
"""One tenant of a workload: its waiting requests in order, and what it was served.

Within a tenant the order is a number that does not change while a request waits, so that a heap
holds it and ageing costs nothing: everybody's claim grows at the same pace.
"""

import heapq
from dataclasses import dataclass, field

from headway_server.scheduler.request import Request

# A request without a deadline goes as if it had one this long after its arrival.
PATIENCE_SECONDS = 10.0
# How much later a request may come and still go first, for each token that it is shorter.
AGEING_SECONDS_PER_TOKEN = 0.01
# An output token costs a tenant as much as two prompt tokens.
OUTPUT_WEIGHT = 2


def claim(request: Request, length_aware: bool) -> float:
    """When it should be served at the latest; the smaller goes first."""
    latest = request.arrival + PATIENCE_SECONDS
    if request.deadline is not None:
        latest = min(latest, request.deadline)
    if length_aware:
        latest += AGEING_SECONDS_PER_TOKEN * request.expected_output
    return latest


def reserved_charge(request: Request) -> int:
    return request.prompt_tokens + OUTPUT_WEIGHT * request.reserved_output


def used_charge(request: Request) -> int:
    prompt = request.prompt_tokens if request.generated else request.computed
    return prompt + OUTPUT_WEIGHT * request.generated


@dataclass(slots=True, eq=False)
class Tenant:
    """`served`: the virtual token counter. `ready`: heap of (claim, place, request), in which
    requests that have left stay until they come up. `entry`: its place among the tenants."""

    name: str
    served: int = 0
    waiting: int = 0
    running: int = 0
    ready: list[tuple[float, int, Request]] = field(default_factory=list)
    entry: tuple[int, float, int, int, "Tenant"] | None = None
    parked: bool = False

    @property
    def idle(self) -> bool:
        return not (self.waiting or self.running)

    def push(self, request: Request, length_aware: bool) -> None:
        heapq.heappush(self.ready, (claim(request, length_aware), request.place, request))

    def charge(self, request: Request, tokens: int) -> None:
        """The tenant has been charged `tokens` for this request in all."""
        self.served += tokens - request.charged
        request.charged = tokens
