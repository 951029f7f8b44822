# SPDX-License-Identifier: Apache-2.0
"""A step while it is being planned; `plan.Plan` is what comes out."""

from collections import deque
from dataclasses import dataclass, field

from headway_server.scheduler.plan import Blocked, Chunk, Plan
from headway_server.scheduler.request import Request
from headway_server.scheduler.workload import Workload


@dataclass(slots=True)
class Turn:
    """What a workload may still do in the step that is being planned.

    set_aside: prompt tokens kept for the oldest unfinished prompt, None before it was looked at.
    closed: the head of the queue has met an obstacle, which stays for this step.
    """

    workload: Workload
    gate_open: bool
    prompt_tokens: int
    unfinished: deque[Request]
    set_aside: int | None = None
    closed: bool = False


@dataclass(slots=True)
class Draft:
    """The step that is being planned. `room` is the prompt tokens that it can still take."""

    now: float
    room: int = 0
    kv_is_short: bool = False
    decode: list[str] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    admitted: list[str] = field(default_factory=list)
    preempted: list[str] = field(default_factory=list)
    blocked: dict[str, Blocked] = field(default_factory=dict)

    def plan(self) -> Plan:
        return Plan(
            tuple(self.decode),
            tuple(self.chunks),
            tuple(self.admitted),
            self.blocked,
            tuple(self.preempted),
        )
