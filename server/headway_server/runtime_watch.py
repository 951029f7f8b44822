# SPDX-License-Identifier: Apache-2.0
"""The mounted runtime file, put into force whenever it changes, or refused and reported.

A ConfigMap volume swaps a symbolic link, so the directory is watched and not the file, and the
file is looked at now and then in case the watch missed something. A refused file changes nothing:
the values in force stay, at start-up the defaults.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from watchfiles import awatch

from headway_api.runtime import RuntimeFileError, parse_runtime_file
from headway_server.settings import (
    Envelope,
    HotSettings,
    SettingsRejected,
    default_file,
    resolve,
)

DEBOUNCE_MILLISECONDS = 100
LOOK_ANYWAY_MILLISECONDS = 1000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why the newest file is not in force. `revision` is what the file claims, if readable."""

    revision: str
    field: str
    message: str


class RuntimeWatch:
    """`path` None: no file, the defaults for ever. `rejection` is about the newest file only."""

    def __init__(self, path: Path | None) -> None:
        self.rejection: Rejection | None = None
        self._path = path
        self._seen: bytes | None = None

    def first(self, envelope: Envelope) -> HotSettings:
        """The file's values, or the defaults where they are refused: the server starts anyhow."""
        defaults = resolve(default_file(), envelope)
        if self._path is None:
            return defaults
        self._seen = _read(self._path)
        return self._judge(self._seen, envelope) or defaults

    async def run(self, envelope: Envelope, apply: Callable[[HotSettings], None]) -> None:
        """Calls `apply` with each new accepted file, until cancelled."""
        if self._path is None:
            return
        async for _ in _changes(self._path.parent):
            content = await asyncio.to_thread(_read, self._path)
            if content == self._seen:
                continue
            self._seen = content
            if settings := self._judge(content, envelope):
                apply(settings)

    def _judge(self, content: bytes | None, envelope: Envelope) -> HotSettings | None:
        """The settings of an acceptable file; otherwise None, and `rejection` says why."""
        revision = ""
        try:
            if content is None:
                raise RuntimeFileError("", f"{self._path} cannot be read")
            file = parse_runtime_file(content)
            revision = file.revision
            settings = resolve(file, envelope)
        except RuntimeFileError as error:
            self._reject(Rejection(error.revision, error.field or "file", error.message))
        except SettingsRejected as error:
            self._reject(Rejection(revision, error.field, error.message))
        else:
            self.rejection = None
            return settings
        return None

    def _reject(self, rejection: Rejection) -> None:
        self.rejection = rejection
        log.warning(
            "runtime file refused, the old values stay: %s: %s",
            rejection.field,
            rejection.message,
            extra={"revision": rejection.revision, "field": rejection.field},
        )


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


async def _changes(directory: Path) -> AsyncIterator[None]:
    """Yields after each change in the directory, and now and then without one."""
    notify = True
    while True:
        try:
            async for _ in awatch(
                directory,
                watch_filter=None,
                recursive=False,
                debounce=DEBOUNCE_MILLISECONDS,
                rust_timeout=LOOK_ANYWAY_MILLISECONDS,
                yield_on_timeout=True,
                force_polling=not notify,
            ):
                yield
        except OSError as error:
            log.info("watching %s by polling: %s", directory, error)
            notify = False
            yield
            await asyncio.sleep(LOOK_ANYWAY_MILLISECONDS / 1000)
