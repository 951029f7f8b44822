# SPDX-License-Identifier: Apache-2.0
"""A step while it is being planned; `plan.Plan` is what comes out."""

from collections import deque
from dataclasses import dataclass, field

from headway_server.scheduler.plan import Blocked, Chunk
from headway_server.scheduler.request import Request
from headway_server.scheduler.workload import Workload


@dataclass(slots=True)
class Turn:
    """What a workload may still do in the step that is being planned."""

    workload: Workload
    gate_open: bool
    prompt_tokens: int
    unfinished: deque[Request]


@dataclass(slots=True)
class Draft:
    """The step that is being planned. `room` is the tokens that the forward pass still has."""

    now: float
    room: int
    kv_is_short: bool = False
    chunks: list[Chunk] = field(default_factory=list)
    admitted: list[str] = field(default_factory=list)
    blocked: dict[str, Blocked] = field(default_factory=dict)
