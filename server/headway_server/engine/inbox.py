# SPDX-License-Identifier: Apache-2.0
"""The way into the engine thread: what other threads ask of it, in the order they asked.

It also counts the requests that are open, so that `idle` is true only when none is anywhere.
"""

from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Lock

from headway_server.engine.messages import Submission
from headway_server.scheduler import Settings


@dataclass(frozen=True, slots=True)
class Cancel:
    request_id: str


@dataclass(frozen=True, slots=True)
class Stop:
    pass


Message = Submission | Cancel | Settings | Stop


class EngineStopped(Exception):
    """The engine takes no more requests; the message says why."""


class Inbox:
    """`busy_since` is when the number of open requests last rose from zero."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Message] = SimpleQueue()
        self._lock = Lock()
        self._open = 0
        self._closed: str | None = None
        self.busy_since = 0.0

    @property
    def open_requests(self) -> int:
        return self._open

    def submit(self, submission: Submission, now: float) -> None:
        """Raises EngineStopped after `close`."""
        with self._lock:
            if self._closed is not None:
                raise EngineStopped(self._closed)
            if not self._open:
                self.busy_since = now
            self._open += 1
            self._queue.put(submission)

    def tell(self, message: Cancel | Settings | Stop) -> None:
        self._queue.put(message)

    def settle(self, requests: int) -> None:
        """That many open requests were answered to the end."""
        with self._lock:
            self._open -= requests

    def close(self, reason: str) -> None:
        with self._lock:
            self._closed = reason

    def receive(self, wait: bool, seconds: float | None = None) -> list[Message]:
        """All messages there are; with `wait`, at least one, unless `seconds` pass before."""
        messages: list[Message] = []
        try:
            if wait:
                messages.append(self._queue.get(timeout=seconds))
            while True:
                messages.append(self._queue.get_nowait())
        except Empty:
            return messages
