# SPDX-License-Identifier: Apache-2.0
"""One JSON object a line on stderr. An exception is told by its type and where it was raised, not
by its text, which may quote what a client sent."""

import logging
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

PLAIN_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Fields given as `extra` become fields of the object. Times are UTC."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        extra = vars(record).items()
        fields |= {name: value for name, value in extra if name not in PLAIN_RECORD}
        if record.exc_info and record.exc_info[1]:
            fields |= _describe(record.exc_info[1])
        return orjson.dumps(fields, default=str).decode()


def configure_logging() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.captureWarnings(True)
    for chatty in ("uvicorn.error", "watchfiles.main", "httpx", "httpcore"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def _describe(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)
    return {
        "exception": type(error).__qualname__,
        "raised_at": [f"{Path(each.filename).name}:{each.lineno} {each.name}" for each in frames],
    }
