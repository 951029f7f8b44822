# SPDX-License-Identifier: Apache-2.0
"""The operator as a process: its command, its ports, its end."""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import httpx
import pytest

from headway_operator.__main__ import main
from headway_operator.kube import DEPLOYMENTS
from tests.operator.running_operator import RunningOperator
from tests.operator.world import World


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_the_command_runs_is_probed_measured_and_ends_when_told(
    running_operator: RunningOperator, world: World, operator_kubeconfig: Path
) -> None:
    running_operator.stop()
    metrics, probe = free_port(), free_port()
    command = [
        sys.executable, "-m", "headway_operator", "run",
        "--server-image", "localhost/headway/server:9",
        "--metrics-provider", f"default={world.prometheus.url}",
        "--namespace", "headway-system",
        "--watch-namespace", world.namespace,
        "--metrics-port", str(metrics),
        "--probe-port", str(probe),
        "--targets-port", "0",
    ]  # fmt: skip
    environment = os.environ | {"KUBECONFIG": str(operator_kubeconfig)}
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stderr=asyncio.subprocess.PIPE
    )
    try:
        await world.create_pool()
        deployment = await world.exists(DEPLOYMENTS, "chat")
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        assert container["image"] == "localhost/headway/server:9"
        async with httpx.AsyncClient() as http:
            health = await http.get(f"http://127.0.0.1:{probe}/healthz")
            assert (health.status_code, health.json()) == (200, {"controller": "ok"})

            async def counted() -> bool:
                text = (await http.get(f"http://127.0.0.1:{metrics}/metrics")).text
                passes = 'headway_operator_reconcile_total{result="done"}'
                requests = 'headway_operator_api_requests_total{code="200",resource="configmaps"'
                return passes in text and requests in text

            await world.eventually(counted, "the pass to be counted")
        process.send_signal(signal.SIGTERM)
        _, log = await process.communicate()
        assert process.returncode == 0, log
        assert b'"severity": "error"' not in log, log
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        running_operator.start()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "--server-image"),
        (["--server-image", "i", "--namespace", "n", "--metrics-provider", "x"], "NAME=URL"),
    ],
)
def test_wrong_flags_are_told(
    flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", *flags])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    text = capsys.readouterr().out
    for flag in ("--server-image", "--metrics-provider", "--namespace", "--watch-namespace"):
        assert flag in text
