# SPDX-License-Identifier: Apache-2.0
"""`headway-server serve` as a process of its own, with the simulated runner, on free ports."""

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

MODEL = "filler"


class ServerProcess:
    """`headway-server serve` with the simulated runner on free ports; `lines` are its stderr."""

    def __init__(self, *flags: str) -> None:
        command = [sys.executable, "-m", "headway_server", "serve", "--host", "127.0.0.1"]
        command += ["--port", "0", "--metrics-port", "0", *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._news: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def wait_for(self, message: str) -> dict[str, Any]:
        """The first log line with this message."""
        while (line := self._news.get(timeout=100)) is not None:
            if line.startswith("{"):
                entry: dict[str, Any] = json.loads(line)
                if entry["message"] == message:
                    return entry
        raise AssertionError(f"ended without {message!r}: {self.lines}")

    def end(self) -> int:
        """The exit code, when it has ended by itself."""
        code = self.process.wait(timeout=60)
        self._reader.join()
        return code

    def _read(self) -> None:
        assert self.process.stderr
        with self.process.stderr as stream:
            for line in stream:
                self.lines.append(line)
                self._news.put(line)
        self._news.put(None)


@contextmanager
def running(*flags: str) -> Iterator[ServerProcess]:
    server = ServerProcess(*flags)
    try:
        yield server
    finally:
        server.process.kill()
        server.end()


@dataclass
class Serving:
    server: ServerProcess
    url: str
    metrics: str

    def gauge(self, name: str) -> float:
        """The first sample whose line starts with `name`."""
        lines = httpx.get(self.metrics).text.splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(name))


@contextmanager
def serving(*flags: str) -> Iterator[Serving]:
    """A ready server. Its steps take long enough for a test to do something meanwhile."""
    slow = ["--simulated-decode-base", "5", "--simulated-prefill-base", "5"]
    with running("--runner", "simulated", "--model", MODEL, *slow, *flags) as server:
        ports = server.wait_for("listening")
        server.wait_for("ready")
        url = f"http://127.0.0.1:{ports['port']}"
        yield Serving(server, url, f"http://127.0.0.1:{ports['metrics_port']}/metrics")
