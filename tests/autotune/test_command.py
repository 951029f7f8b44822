# SPDX-License-Identifier: Apache-2.0
"""The process: its flags, its metrics port, and an end that is not a crash."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from headway_autotune.__main__ import main

PATIENCE = 60.0
NOBODY = """
apiVersion: v1
kind: Config
current-context: nobody
contexts: [{name: nobody, context: {cluster: nobody, user: nobody}}]
clusters: [{name: nobody, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: nobody, user: {}}]
"""


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["run", "--help"])
    assert done.value.code == 0
    text = capsys.readouterr().out
    for flag in ("--metrics-provider", "--watch-namespace", "--metrics-port", "--tick-seconds"):
        assert flag in text


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--metrics-provider", "default"], "not NAME=URL"),
        (["--metrics-provider", "a=http://x", "--tick-seconds", "0"], "not above zero"),
    ],
)
def test_a_wrong_flag_is_answered_with_a_sentence(
    flags: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as done:
        main(["run", *flags])
    assert done.value.code == 2
    assert says in capsys.readouterr().err


def test_without_an_api_server_it_keeps_trying_and_ends_when_told(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(NOBODY)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "headway_autotune", "run", "--tick-seconds=0.1"]
    provider = ["--metrics-provider=default=http://127.0.0.1:1", f"--metrics-port={port}"]
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([*command, *provider], env=environment, stderr=log)
    try:
        _await_line(process, tmp_path / "log", "could not be listed")
        exposed = httpx.get(f"http://127.0.0.1:{port}/metrics").text
        assert "headway_autotune_decisions_total" in exposed
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()


def _await_line(process: subprocess.Popen[bytes], log: Path, words: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while words not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
