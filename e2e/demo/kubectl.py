# SPDX-License-Identifier: Apache-2.0
"""kubectl and helm as a user runs them, with the cluster's own binaries and kubeconfig."""

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

Value = TypeVar("Value")

_FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")
_COMMAND_TIMEOUT_SECONDS = 600


class CommandError(Exception):
    """A command failed; the message is the command's own last words."""


class NotInTime(Exception):
    """A condition did not come true in time; the message says what was last seen."""


@dataclass(frozen=True)
class Tools:
    """Where the binaries and the kubeconfig are, and the namespace that commands speak to."""

    binaries: Path
    kubeconfig: Path
    namespace: str

    def run(self, *command: str, input_text: str | None = None) -> str:
        """Standard output of `kubectl …` or `helm …`; raises CommandError with its last words."""
        finished = subprocess.run(
            [str(self.binaries / command[0]), *command[1:]],
            env=self._environment(),
            input=input_text,
            capture_output=True,
            text=True,
            timeout=_COMMAND_TIMEOUT_SECONDS,
            check=False,
        )
        if finished.returncode:
            raise CommandError(f"{' '.join(command)}: {finished.stderr.strip()}")
        return finished.stdout

    def kubectl(self, *arguments: str, input_text: str | None = None) -> str:
        return self.run("kubectl", "-n", self.namespace, *arguments, input_text=input_text)

    def get(self, *arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return found

    @contextmanager
    def port_forward(self, target: str, port: int) -> Iterator[str]:
        """Base URL of a local port that reaches `port` of `target`, e.g. `service/chat`."""
        command = [str(self.binaries / "kubectl"), "-n", self.namespace, "port-forward", target]
        with subprocess.Popen(
            [*command, f":{port}"],
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as forward:
            try:
                yield f"http://127.0.0.1:{_local_port(forward)}"
            finally:
                forward.terminate()

    def _environment(self) -> dict[str, str]:
        path = f"{self.binaries}:{os.environ.get('PATH', '')}"
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "PATH": path}


def _local_port(forward: "subprocess.Popen[str]") -> str:
    assert forward.stdout is not None
    seen = []
    for line in forward.stdout:
        if match := _FORWARDING.search(line):
            # A full pipe would block kubectl, which writes a line for every connection.
            threading.Thread(target=forward.stdout.read, daemon=True).start()
            return match.group(1)
        seen.append(line)
    raise CommandError(f"kubectl port-forward: {''.join(seen).strip()}")


def await_condition(
    what: str, look: Callable[[], Value | None], seconds: float, interval: float = 0.5
) -> Value:
    """Poll `look` until it returns something; raises NotInTime naming `what`."""
    deadline = time.monotonic() + seconds
    while (value := look()) is None:
        if time.monotonic() > deadline:
            raise NotInTime(f"{what}: not within {seconds:.0f} s")
        time.sleep(interval)
    return value
