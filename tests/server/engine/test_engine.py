# SPDX-License-Identifier: Apache-2.0
"""The engine on its own thread, as the HTTP side meets it."""

import threading
from collections.abc import Iterator, Sequence
from queue import Queue
from typing import Any

import pytest
from tests.waiting import wait_until

from headway_server.engine.engine import Engine, EngineConfig, EngineStopped
from headway_server.engine.messages import Finish, Refusal, Sampling, Submission, TokenOutput
from headway_server.runner.protocol import Row, RunnerLost, Step
from headway_server.runner.simulated import SimulatedRunner

PATIENCE = 20.0


class GatedRunner(SimulatedRunner):
    """Each step waits for `allow`, so that a test decides what happens before it ends."""

    def __init__(self, **values: Any) -> None:
        super().__init__(400, vocab_size=50, sleep=lambda seconds: None, **values)
        self.entered = threading.Semaphore(0)
        self.allowed = threading.Semaphore(0)
        self.error: Exception | None = None

    def launch(self, batch: Sequence[Row]) -> Step:
        self.entered.release()
        assert self.allowed.acquire(timeout=PATIENCE)
        if self.error is not None:
            raise self.error
        return super().launch(batch)

    def allow(self, steps: int = 1) -> None:
        for _ in range(steps):
            self.allowed.release()


class Desk:
    """The HTTP side: submits, and takes outputs as they come."""

    def __init__(self, settings: Any) -> None:
        self.runner = GatedRunner()
        self.emitted: Queue[list[TokenOutput]] = Queue()
        self.now = 0.0
        self.looks_at_the_clock = 0
        self.engine = Engine(self.runner, EngineConfig(settings()), self.emitted.put, self.clock)

    def clock(self) -> float:
        self.looks_at_the_clock += 1
        return self.now

    def submit(self, request_id: str, output: int = 2, **values: Any) -> None:
        sampling = Sampling()
        self.engine.submit(
            Submission(
                request_id, "chat", "t", (1, 2), output, sampling, frozenset(), 0.0, **values
            )
        )

    def next_outputs(self) -> list[TokenOutput]:
        return self.emitted.get(timeout=PATIENCE)


@pytest.fixture
def desk(settings: Any) -> Iterator[Desk]:
    desk = Desk(settings)
    desk.engine.start()
    yield desk
    desk.runner.allow(1000)
    desk.engine.stop(PATIENCE)


def test_outputs_come_once_a_step_with_all_requests_of_the_step(desk: Desk) -> None:
    desk.submit("a", output=3)
    assert desk.runner.entered.acquire(timeout=PATIENCE)
    desk.submit("b")
    desk.runner.allow(3)
    steps = [desk.next_outputs() for _ in range(3)]
    assert [[output.request_id for output in step] for step in steps] == [
        ["a"],
        ["a", "b"],
        ["a", "b"],
    ]
    assert [output.finish for output in steps[2]] == [Finish.LENGTH, Finish.LENGTH]
    wait_until(lambda: desk.engine.idle, "an idle engine")


def test_an_idle_engine_waits_without_turning_and_still_takes_settings(
    desk: Desk, settings: Any
) -> None:
    assert desk.engine.idle
    desk.engine.apply(settings("r2"))
    wait_until(lambda: desk.engine.state.revision == "r2", "r2 in force")
    looks_at_the_clock = desk.looks_at_the_clock
    desk.engine.apply(settings("r3"))
    wait_until(lambda: desk.engine.state.revision == "r3", "r3 in force")
    assert desk.looks_at_the_clock - looks_at_the_clock <= 2
    assert desk.engine.state.steps.steps == 0
    assert desk.engine.idle


def test_a_cancel_frees_the_place_and_is_answered(desk: Desk) -> None:
    desk.submit("a", output=100)
    assert desk.runner.entered.acquire(timeout=PATIENCE)
    desk.engine.cancel("a")
    desk.runner.allow()
    (output,) = desk.next_outputs()
    assert output.finish == Finish.ABORT
    assert desk.engine.state.kv_used_tokens == 0


def test_a_stuck_step_shows_as_stalled_but_idle_time_does_not(desk: Desk) -> None:
    desk.now = 1000.0
    assert desk.engine.stalled_seconds(1000.0) == 0
    desk.submit("a", output=1)
    assert desk.runner.entered.acquire(timeout=PATIENCE)
    assert desk.engine.stalled_seconds(1000.0) == 0
    assert desk.engine.stalled_seconds(1060.0) == 60
    desk.runner.allow()
    desk.next_outputs()
    wait_until(lambda: desk.engine.stalled_seconds(1060.0) == 0, "no stall")


def test_stopping_aborts_what_is_open_and_takes_no_more(settings: Any) -> None:
    desk = Desk(settings)
    desk.engine.start()
    desk.submit("running", output=100)
    assert desk.runner.entered.acquire(timeout=PATIENCE)
    stopper = threading.Thread(target=desk.engine.stop, args=(PATIENCE,))
    stopper.start()
    desk.runner.allow(100)
    stopper.join(PATIENCE)
    outputs = [output for _ in range(desk.emitted.qsize()) for output in desk.next_outputs()]
    assert outputs[-1].finish == Finish.ABORT
    assert desk.engine.failed is None
    with pytest.raises(EngineStopped, match="has stopped"):
        desk.submit("late")


def test_stop_says_when_a_step_does_not_end(desk: Desk) -> None:
    desk.submit("a")
    assert desk.runner.entered.acquire(timeout=PATIENCE)
    with pytest.raises(TimeoutError, match=r"within 0\.01 s"):
        desk.engine.stop(0.01)


def test_a_lost_runner_fails_the_engine_and_answers_everybody(desk: Desk) -> None:
    desk.submit("running")
    assert desk.runner.entered.acquire(timeout=PATIENCE)
    desk.submit("arriving")
    desk.runner.error = RunnerLost("device fault")
    desk.runner.allow()
    by_id = {output.request_id: output for output in desk.next_outputs()}
    assert by_id["running"].finish == Finish.ERROR
    assert by_id["arriving"].refusal == Refusal.STOPPING
    assert desk.engine.failed == "the engine thread died: RunnerLost: device fault"
    with pytest.raises(EngineStopped, match="device fault"):
        desk.submit("late")


def test_a_failing_step_leaves_the_engine_alive(desk: Desk) -> None:
    desk.runner.error = ValueError("bad step")
    desk.submit("a")
    desk.runner.allow()
    (output,) = desk.next_outputs()
    assert output.finish == Finish.ERROR
    desk.runner.error = None
    desk.submit("b", output=1)
    desk.runner.allow()
    (output,) = desk.next_outputs()
    assert (output.request_id, output.finish) == ("b", Finish.LENGTH)
    assert desk.engine.failed is None


def test_an_emit_that_raises_fails_the_engine_visibly(settings: Any) -> None:
    def emit(outputs: list[TokenOutput]) -> None:
        raise RuntimeError("the event loop is closed")

    desk = Desk(settings)
    engine = Engine(desk.runner, EngineConfig(settings()), emit, lambda: 0.0)
    desk.engine = engine
    engine.start()
    desk.submit("a")
    desk.runner.allow()
    wait_until(lambda: engine.failed is not None, "the failure")
    assert "event loop is closed" in str(engine.failed)
    engine.stop(PATIENCE)
