# SPDX-License-Identifier: Apache-2.0
"""The engine's inside as a text, for the log of a replica that no longer gets on.

It changes nothing and holds no lock: of an engine that is stuck it is exact, of one that runs it
may mix two steps. It never shows a prompt, an answer or a tenant's name.
"""

from collections.abc import Iterator

from headway_server.engine.blocks import BlockPool
from headway_server.scheduler import Plan, Request, Scheduler, Workload

SHOWN = 20


def report(scheduler: Scheduler, blocks: BlockPool, plan: Plan, now: float) -> str:
    return "\n".join(_lines(scheduler, blocks, plan, now))


def _lines(scheduler: Scheduler, blocks: BlockPool, plan: Plan, now: float) -> Iterator[str]:
    yield (
        f"KV blocks: {blocks.total} in all, {blocks.used} used, {blocks.free_blocks} free; "
        f"prompt tokens a step: {scheduler.prompt_room} of {scheduler.capacity.step_tokens}"
    )
    yield (
        f"last plan: {len(plan.decode)} decode rows, {len(plan.chunks)} chunks with "
        f"{plan.prompt_tokens} tokens, {len(plan.admitted)} admitted, "
        f"{len(plan.preempted)} preempted, blocked: {dict(plan.blocked) or 'nobody'}"
    )
    for name, workload in list(scheduler.workloads.items()):
        yield from _workload(name, workload, now)


def _workload(name: str, workload: Workload, now: float) -> Iterator[str]:
    running = list(workload.running.values())
    oldest = workload.waiting.oldest_arrival
    waited = "" if oldest is None else f", the oldest since {now - oldest:.1f} s"
    yield (
        f"workload {name}: {len(running)} running, {len(workload.waiting)} waiting{waited}; "
        f"{workload.reserved_tokens} of {workload.policy.knobs.max_batch_total_tokens} tokens "
        f"reserved; {workload.preemptions} preemptions; priority {workload.policy.priority}"
    )
    for request in running[:SHOWN]:
        yield f"  {_request(request)}"
    if len(running) > SHOWN:
        yield f"  and {len(running) - SHOWN} more"


def _request(request: Request) -> str:
    return (
        f"{request.request_id}: {request.computed} tokens computed, {request.prompt_left} of the "
        f"prompt left, answer {request.generated}, reserved {request.reserved_output} of "
        f"{request.max_new_tokens}, preempted {request.preemptions} times"
    )
