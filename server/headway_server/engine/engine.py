# SPDX-License-Identifier: Apache-2.0
"""The thread that runs the model, and the face it shows to the other threads.

All methods may be called from any thread. The work is done in `core`, on this thread alone.
"""

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from threading import Thread

from headway_server.engine.core import Clock, EngineCore
from headway_server.engine.describe import describe
from headway_server.engine.inbox import Cancel, EngineStopped, Inbox, Stop
from headway_server.engine.lengths import Lengths
from headway_server.engine.messages import Submission, TokenOutput
from headway_server.engine.state import EngineState
from headway_server.runner.protocol import Runner
from headway_server.scheduler import Settings

__all__ = ["Emit", "Engine", "EngineConfig", "EngineStopped"]

log = logging.getLogger(__name__)

Emit = Callable[[list[TokenOutput]], None]


SECRET_BYTES = 32


def random_seed() -> int:
    return secrets.randbits(63)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """`draw_seed` gives a seed to each request that came without one. `lengths` None expects every
    answer to be as long as it may."""

    settings: Settings
    draw_seed: Callable[[], int] = random_seed
    prefix_caching: bool = True
    lengths: Lengths | None = None


class Engine:
    """`emit` is called on the engine's thread, at most once a step, with the step's outputs."""

    def __init__(self, runner: Runner, config: EngineConfig, emit: Emit, clock: Clock) -> None:
        self._emit = emit
        self._clock = clock
        self._inbox = Inbox()
        self._core = EngineCore(
            runner,
            config.settings,
            self._inbox,
            clock,
            config.draw_seed,
            secrets.token_bytes(SECRET_BYTES) if config.prefix_caching else None,
            config.lengths,
        )
        self._state = self._core.snapshot()
        self._failed: str | None = None
        self._thread = Thread(target=self._run, name="headway-engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Ends the thread; requests that are still open end as aborted. Drain first, if wanted.

        Raises TimeoutError if the step in progress does not end within `timeout` seconds.
        """
        self._inbox.tell(Stop())
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"the engine's step did not end within {timeout} s")

    def submit(self, submission: Submission) -> None:
        """Raises EngineStopped once the engine has stopped or failed."""
        self._inbox.submit(submission, self._clock())

    def cancel(self, request_id: str) -> None:
        """The request's place is free at the next step; it ends as aborted. Unknown: ignored."""
        self._inbox.tell(Cancel(request_id))

    def apply(self, settings: Settings) -> None:
        """In force from the next step; `state.revision` tells when."""
        self._inbox.tell(settings)

    @property
    def state(self) -> EngineState:
        return self._state

    @property
    def failed(self) -> str | None:
        """Why the thread died, if it did."""
        return self._failed

    @property
    def idle(self) -> bool:
        """No request is open: none running, waiting, or on its way in."""
        return not self._inbox.open_requests

    def stalled_seconds(self, now: float) -> float:
        """For how long there has been work without a step ending; 0 when there is no work."""
        if self.idle:
            return 0.0
        return max(0.0, now - max(self._state.last_progress, self._inbox.busy_since))

    def dump(self) -> str:
        """Queues, running requests, blocks and the last plan, for the log when nothing moves."""
        return self._core.dump()

    def _run(self) -> None:
        try:
            while not self._core.stopping:
                self._deliver(self._core.turn())
        except Exception as error:
            log.exception("the engine thread died")
            self._failed = f"the engine thread died: {describe(error)}"
        self._inbox.close(self._failed or "the engine has stopped")
        try:
            self._deliver(self._core.abandon_all(self._failed))
        except Exception:
            log.exception("open requests could not be told that the engine has ended")

    def _deliver(self, outputs: list[TokenOutput]) -> None:
        """The state goes first, so that whoever gets an output finds a state that agrees."""
        self._state = self._core.snapshot()
        if outputs:
            self._emit(outputs)
            self._inbox.settle(sum(output.finish is not None for output in outputs))
