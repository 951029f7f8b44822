# SPDX-License-Identifier: Apache-2.0
"""Whatever comes or leaves in whatever order: no batch is too large, nobody is forgotten."""

from itertools import count
from typing import Any

import hypothesis.strategies as st
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.server.scheduler.floor import Floor, request

from headway_server.scheduler.settings import Formation

formations: Any = st.builds(
    Formation,
    policy=st.sampled_from(("Static", "Dynamic", "MultiBin")),
    max_batch_size=st.integers(1, 4),
    max_delay_seconds=st.sampled_from((0.0, 2.0, 9.0)),
    bins=st.integers(1, 4),
)


class FormationMachine(RuleBasedStateMachine):
    @initialize(settings=formations, slots=st.integers(1, 4))
    def start(self, settings: Formation, slots: int) -> None:
        self.engine = Floor(settings, slots, step_seconds=1.0)
        self.ids = count()

    @rule(output=st.integers(1, 9), expected=st.integers(1, 9), late=st.integers(0, 3))
    def arrive(self, output: int, expected: int, late: int) -> None:
        """Not always in the order of the arrival times."""
        name = str(next(self.ids))
        self.engine.arrive(request(name, output, self.engine.now - late, expected))

    @precondition(lambda self: not self.engine.is_empty)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        open_requests = [*self.engine.held, *self.engine.released, *self.engine.running]
        self.engine.cancel(data.draw(st.sampled_from(sorted(open_requests))))

    @rule()
    def step(self) -> None:
        now, was_free, waited = self.engine.now, self.engine_is_free(), bool(self.engine.held)
        self.engine.step()
        names = [name for _, name in self.engine.admissions]
        assert len(set(names)) == len(names)
        assert len(self.engine.running) <= self.engine.settings.max_batch_size
        if was_free and waited and not any(at == now for at, _ in self.engine.admissions):
            assert self.engine.former
            due = self.engine.former.due()
            assert due is not None
            assert now < due <= now + self.engine.settings.max_delay_seconds

    def engine_is_free(self) -> bool:
        return not (self.engine.running or self.engine.released)

    def teardown(self) -> None:
        """Whoever is left is served; nobody is forgotten."""
        for _ in range(1000):
            if self.engine.is_empty:
                return
            self.engine.step()
        raise AssertionError(f"still there: {self.engine}")


TestFormation = FormationMachine.TestCase
TestFormation.settings = hypothesis_settings(max_examples=60, stateful_step_count=40, deadline=None)


arrivals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=40
)


@given(
    arrivals=arrivals,
    policy=st.sampled_from(("Static", "Dynamic", "MultiBin")),
    size=st.integers(1, 4),
    delay=st.sampled_from((0, 3, 20)),
)
@hypothesis_settings(max_examples=100, deadline=None)
def test_each_is_admitted_once_and_in_time(
    arrivals: list[tuple[int, int, int]], policy: Any, size: int, delay: int
) -> None:
    """Each batch that goes before a request has somebody who came before that one was overdue."""
    settings = Formation(policy=policy, max_batch_size=size, max_delay_seconds=delay, bins=3)
    engine = Floor(settings, slots=100, step_seconds=1.0)
    came: dict[str, float] = {}
    coming = sorted(arrivals)
    while coming or not engine.is_empty:
        while coming and coming[0][0] <= engine.now:
            arrival, output, expected = coming.pop(0)
            came[name := str(len(came))] = arrival
            engine.arrive(request(name, output, arrival, expected))
        engine.step()
        assert len(engine.running) <= size
        assert engine.steps < 2000
    assert sorted(name for _, name in engine.admissions) == sorted(came)
    batches: dict[float, list[str]] = {}
    for now, name in engine.admissions:
        batches.setdefault(now, []).append(name)
    assert max(map(len, batches.values())) <= size
    for now, batch in batches.items():
        for earlier in (others for at, others in batches.items() if at < now):
            first = min(came[name] for name in earlier)
            assert all(first <= came[name] + delay for name in batch)
