# SPDX-License-Identifier: Apache-2.0
"""Which request runs in the next step: a pure, deterministic part of the server.

It knows token counts, never token ids; it imports neither torch nor I/O nor a clock, so that
the tuner can replay it. The engine is its only other caller.
"""

from headway_server.scheduler.batch_former import BatchFormer, FormerFor
from headway_server.scheduler.kv import CountedKv, KvSpace
from headway_server.scheduler.length import Expectation, LengthPredictor
from headway_server.scheduler.plan import Blocked, Chunk, Plan
from headway_server.scheduler.refused import Refusal, Refused
from headway_server.scheduler.request import Request
from headway_server.scheduler.scheduler import Scheduler
from headway_server.scheduler.settings import (
    Capacity,
    Formation,
    Knobs,
    Settings,
    WorkloadPolicy,
)
from headway_server.scheduler.workload import Workload

__all__ = [
    "BatchFormer",
    "Blocked",
    "Capacity",
    "Chunk",
    "CountedKv",
    "Expectation",
    "Formation",
    "FormerFor",
    "Knobs",
    "KvSpace",
    "LengthPredictor",
    "Plan",
    "Refusal",
    "Refused",
    "Request",
    "Scheduler",
    "Settings",
    "Workload",
    "WorkloadPolicy",
]
