# SPDX-License-Identifier: Apache-2.0
"""A pure engine for the policies that form batches: slots, and one token a step for each taken."""

from dataclasses import dataclass, field

from headway_server.scheduler import Request
from headway_server.scheduler.formation import named_former
from headway_server.scheduler.settings import Formation


def request(name: str, output: int, arrival: float = 0.0, expected: int | None = None) -> Request:
    tokens = output if expected is None else expected
    return Request(name, "chat", "t", 1, output, arrival, expected_output=tokens)


@dataclass
class Floor:
    """`admissions` are (time, id). Whoever is released runs as soon as there is a slot."""

    settings: Formation
    slots: int
    step_seconds: float = 0.01
    now: float = 0.0
    steps: int = 0
    held: set[str] = field(default_factory=set)
    released: dict[str, Request] = field(default_factory=dict)
    running: dict[str, Request] = field(default_factory=dict)
    admissions: list[tuple[float, str]] = field(default_factory=list)
    left_at: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.former = named_former(self.settings)

    @property
    def is_empty(self) -> bool:
        return not (self.held or self.released or self.running)

    def arrive(self, *requests: Request) -> None:
        for each in requests:
            if self.former is None:
                self.released[each.request_id] = each
            else:
                self.held.add(each.request_id)
                self.former.hold(each, self.now)

    def cancel(self, name: str) -> None:
        self.held.discard(name)
        self.released.pop(name, None)
        self.running.pop(name, None)
        if self.former:
            self.former.forget(name)

    def step(self) -> None:
        self._admit()
        for each in list(self.running.values()):
            each.generated += 1
            if each.generated == each.max_new_tokens:
                self.left_at[each.request_id] = self.steps + 1
                self.cancel(each.request_id)
        self.steps += 1
        self.now += self.step_seconds

    def run(self) -> None:
        """Until all have left; an idle engine sleeps until a batch is due."""
        while not self.is_empty:
            before = self.steps
            self.step()
            due = self.former.due() if self.former else None
            if due is not None:
                assert not self.running
                self.now, self.steps = due, before

    def _admit(self) -> None:
        if self.former:
            in_batch = len(self.running) + len(self.released)
            for each in self.former.release(self.now, in_batch):
                self.held.remove(each.request_id)
                self.released[each.request_id] = each
        for name in list(self.released)[: self.slots - len(self.running)]:
            self.running[name] = self.released.pop(name)
            self.admissions.append((self.now, name))
