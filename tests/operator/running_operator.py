# SPDX-License-Identifier: Apache-2.0
"""The real operator, under the real kopf, in a thread of the test process.

It logs in as a service account that holds exactly `PERMISSIONS`, so a right that is missing from
the table fails every test, and its requests are recorded, so a right that is not used shows too.
"""

import asyncio
import threading
import time
from concurrent.futures import Future

import kopf
from prometheus_client import CollectorRegistry

from headway_operator import handlers
from headway_operator.controller import Controller
from headway_operator.options import Options

WRITES = frozenset({"create", "patch", "delete"})
START_SECONDS = 60.0
STOP_SECONDS = 60.0
SOON_SECONDS = 5.0


class RunningOperator:
    """Start and stop as often as wanted; `requests` are (verb, resource) of all runs."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.requests: list[tuple[str, str]] = []
        self.codes: list[int] = []
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="operator")
        self._thread.start()
        ready.result(START_SECONDS)

    def stop(self) -> None:
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(STOP_SECONDS)
        assert not self._thread.is_alive(), "the operator did not stop"
        self._thread = None

    @property
    def running(self) -> bool:
        return self._thread is not None

    def restart(self) -> None:
        self.stop()
        self.start()

    def writes(self) -> list[tuple[str, str]]:
        return [request for request in self.requests if request[0] in WRITES]

    def pool_passes(self) -> int:
        return self.requests.count(("get", "inferencepools"))

    def resync(self) -> None:
        """Have all pools listed and looked at, as happens from time to time."""
        done = asyncio.run_coroutine_threadsafe(self.controller._resync(), self._loop)
        done.result(START_SECONDS)

    async def pass_after(self, passes: int) -> None:
        """Wait until a pass over some pool has begun after so many."""
        deadline = time.monotonic() + STOP_SECONDS
        while self.pool_passes() <= passes:
            assert time.monotonic() < deadline, "the operator does not look"
            await asyncio.sleep(0.02)

    async def idle(self, namespace: str) -> None:
        """Wait until no pool of the namespace waits, not even for a pass that is due soon."""
        deadline = time.monotonic() + STOP_SECONDS
        while self._busy(namespace):
            assert time.monotonic() < deadline, "the operator does not come to rest"
            await asyncio.sleep(0.02)

    def _busy(self, namespace: str) -> bool:
        queue = self.controller._queue
        soon = self._loop.time() + SOON_SECONDS
        due = [key for key, timer in list(queue._timers.items()) if timer.when() < soon]
        keys = [*list(queue._waiting), *list(queue._handled_since), *due]
        return any(key.namespace == namespace for key in keys)

    def _run(self, ready: Future[None]) -> None:
        try:
            asyncio.run(self._main(ready))
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)

    async def _main(self, ready: Future[None]) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self.controller = Controller(self.options, CollectorRegistry(), on_request=self._record)
        await kopf.operator(
            registry=handlers.REGISTRY,
            memo=kopf.Memo(controller=self.controller),
            standalone=True,
            clusterwide=True,
            ready_flag=ready,
            stop_flag=self._stop,
        )

    def _record(self, verb: str, resource: str, code: int) -> None:
        self.requests.append((verb, resource))
        self.codes.append(code)
