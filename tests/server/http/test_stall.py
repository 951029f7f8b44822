# SPDX-License-Identifier: Apache-2.0
"""A replica that gets on no more says so once, with what its engine was about."""

import asyncio
import logging

import pytest
from tests.server.http.serving import new_serving, until

from headway_server import process
from headway_server.service import Limits


async def test_stall_is_logged_once_with_the_engines_inside(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    monkeypatch.setattr(process, "TROUBLE_CHECK_SECONDS", 0.001)
    with new_serving(Limits(stall_seconds=5)) as serving:
        serving.start()
        request = asyncio.create_task(serving.chat("a secret", max_tokens=2))
        await until(lambda: serving.gate.holding)
        looks: list[str | None] = []

        def look() -> str | None:
            looks.append(trouble())
            return looks[-1]

        trouble = serving.service.trouble
        monkeypatch.setattr(serving.service, "trouble", look)
        reporting = asyncio.create_task(process.report_trouble(serving.service))
        for _ in range(2):
            serving.clock.ahead = 60
            await until(lambda: len(looks) > 5 and all(looks[-3:]))
            serving.clock.ahead = 0
            await until(lambda: not any(looks[-3:]))
        reporting.cancel()
        serving.gate.open()
        await request
        await serving.client.aclose()
    reports = [record for record in caplog.records if "unhealthy" in record.message]
    assert len(reports) == 2
    for report in reports:
        assert "no step has ended" in report.message
        assert "workload chat: 1 running" in vars(report)["engine"]
        assert "secret" not in vars(report)["engine"]
