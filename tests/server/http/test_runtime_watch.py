# SPDX-License-Identifier: Apache-2.0
"""The mounted file, swapped as a kubelet swaps it, while requests run."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.server.http.serving import ENVELOPE, MODEL, Serving, runtime_file, until

from headway_api import metric_names
from headway_api.runtime import RuntimeFile, canonical_json
from headway_server.metrics import RejectionCollector
from headway_server.runtime_watch import RuntimeWatch
from headway_server.settings import HotSettings, default_file, resolve

ACCEPTABLE = runtime_file(batching={"max_batch_total_tokens": 512})
TOO_LARGE = runtime_file(batching={"max_batch_total_tokens": 4096})


class Mount:
    """A ConfigMap volume: files behind a link `..data` to a directory, exchanged by a rename."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "runtime.json"
        self._version = 0

    def write(self, text: str) -> None:
        self._version += 1
        version = self.directory / f"..v{self._version}"
        version.mkdir()
        (version / "runtime.json").write_text(text)
        link = self.directory / "..data_tmp"
        link.symlink_to(version.name)
        link.rename(self.directory / "..data")
        if not self.file.is_symlink():
            self.file.symlink_to("..data/runtime.json")

    def publish(self, file: RuntimeFile) -> None:
        self.write(canonical_json(file))


class Watched:
    """A watch that runs, and what it applied."""

    def __init__(self, path: Path) -> None:
        self.watch = RuntimeWatch(path)
        self.first = self.watch.first(ENVELOPE)
        self.applied: list[HotSettings] = []

    async def run(self) -> None:
        await self.watch.run(ENVELOPE, self.applied.append)


@pytest.fixture
def mount(tmp_path: Path) -> Mount:
    return Mount(tmp_path)


@pytest.fixture
async def watched(mount: Mount) -> AsyncIterator[Watched]:
    mount.publish(runtime_file())
    watched = Watched(mount.file)
    task = asyncio.create_task(watched.run())
    yield watched
    task.cancel()
    await asyncio.wait([task])


async def test_swapped_file_is_applied(mount: Mount, watched: Watched) -> None:
    assert watched.first.revision == runtime_file().revision
    mount.publish(ACCEPTABLE)
    await until(lambda: bool(watched.applied))
    assert [each.revision for each in watched.applied] == [ACCEPTABLE.revision]
    assert watched.watch.rejection is None


@pytest.mark.parametrize(
    ("text", "revision", "field"),
    [
        (canonical_json(TOO_LARGE), TOO_LARGE.revision, "maxBatchTotalTokens"),
        ('{"revision": "abc", "stable": {}}', "abc", "stable"),
        (canonical_json(ACCEPTABLE).replace("512", "513"), ACCEPTABLE.revision, "revision"),
        (
            canonical_json(ACCEPTABLE).replace('"name"', '"nome"'),
            ACCEPTABLE.revision,
            "stable.workloads[0].name",
        ),
        ("not json", "", "file"),
        ("", "", "file"),
    ],
)
async def test_refused_file_leaves_the_values_and_is_reported(
    mount: Mount, watched: Watched, text: str, revision: str, field: str
) -> None:
    mount.write(text)
    await until(lambda: watched.watch.rejection is not None)
    rejection = watched.watch.rejection
    assert rejection
    assert rejection.revision == revision
    assert field in rejection.field
    assert watched.applied == []


async def test_next_good_file_ends_the_rejection(mount: Mount, watched: Watched) -> None:
    mount.publish(TOO_LARGE)
    await until(lambda: watched.watch.rejection is not None)
    mount.publish(ACCEPTABLE)
    await until(lambda: bool(watched.applied))
    assert watched.watch.rejection is None


async def test_file_that_goes_away_is_a_rejection(mount: Mount, watched: Watched) -> None:
    mount.file.unlink()
    await until(lambda: watched.watch.rejection is not None)
    assert watched.applied == []


@pytest.mark.parametrize("text", [None, "", "{}", canonical_json(TOO_LARGE)])
def test_bad_file_at_start_means_defaults_and_a_rejection(mount: Mount, text: str | None) -> None:
    if text is not None:
        mount.write(text)
    watch = RuntimeWatch(mount.file)
    assert watch.first(ENVELOPE) == resolve(default_file(), ENVELOPE)
    assert watch.rejection


async def test_file_repaired_after_a_bad_start_is_applied(mount: Mount) -> None:
    watched = Watched(mount.file)
    task = asyncio.create_task(watched.run())
    mount.publish(ACCEPTABLE)
    await until(lambda: bool(watched.applied))
    assert watched.watch.rejection is None
    task.cancel()
    await asyncio.wait([task])


async def test_directory_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    mount = Mount(tmp_path / "later")
    watched = Watched(mount.file)
    task = asyncio.create_task(watched.run())
    await until(lambda: watched.watch.rejection is not None)
    mount.directory.mkdir()
    mount.publish(ACCEPTABLE)
    await until(lambda: bool(watched.applied))
    task.cancel()
    await asyncio.wait([task])


async def test_values_change_while_a_stream_runs(loading: Serving, mount: Mount) -> None:
    mount.publish(runtime_file())
    watch = RuntimeWatch(mount.file)
    watch.first(ENVELOPE)
    loading.registry.register(RejectionCollector(MODEL, lambda: watch.rejection))
    loading.start(runtime_file())
    task = asyncio.create_task(watch.run(ENVELOPE, loading.service.apply))
    request = asyncio.create_task(loading.chat(max_tokens=100, stream=True))
    await loading.step_until_busy(running=1)

    mount.publish(ACCEPTABLE)
    await loading.step_until(lambda: loading.state.revision == ACCEPTABLE.revision)
    info, rejected = metric_names.RUNTIME_CONFIG_INFO, metric_names.RUNTIME_CONFIG_REJECTED
    knob = {"workload": "chat", "knob": "maxBatchTotalTokens"}
    assert loading.sample(info, revision=ACCEPTABLE.revision) == 1
    assert loading.sample(metric_names.KNOB_VALUE, **knob) == 512

    mount.publish(TOO_LARGE)
    await until(lambda: watch.rejection is not None)
    labels = {
        "revision": TOO_LARGE.revision,
        "field": "stable.workloads[0].batching.maxBatchTotalTokens",
    }
    assert loading.sample(rejected, **labels) == 1
    assert loading.sample(info, revision=ACCEPTABLE.revision) == 1
    assert loading.sample(metric_names.KNOB_VALUE, **knob) == 512

    loading.gate.open()
    assert (await request).text.endswith("data: [DONE]\n\n")
    task.cancel()
    await asyncio.wait([task])
