# SPDX-License-Identifier: Apache-2.0
"""The tuner's log: one JSON object per line, and per decision all that led to it."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from headway_autotune.decision import Decision
from headway_autotune.pool import TunedPool


class JsonFormatter(logging.Formatter):
    """A record's `fields` become members of its object."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return "".join((text, *(f" {key}={value}" for key, value in _fields(record).items())))


def configure(log_format: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    text = TextFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if log_format == "json" else text)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)


def decision_fields(pool: TunedPool, decision: Decision) -> dict[str, Any]:
    observation = decision.observation
    window = observation.window if observation else None
    return {
        "namespace": pool.namespace,
        "pool": pool.name,
        "generation": pool.generation,
        "mode": pool.autotune.mode,
        "window": [window.start, window.end] if window else None,
        "kvUsagePercent": round(observation.kv_usage_percent) if observation else None,
        "workloads": [
            {
                "name": verdict.workload,
                "action": verdict.action,
                "reason": verdict.reason,
                "message": verdict.message,
                "from": verdict.old,
                "to": verdict.new,
                "objectives": _objectives(decision, verdict.workload),
            }
            for verdict in decision.verdicts
        ],
    }


def _objectives(decision: Decision, workload: str) -> list[dict[str, Any]]:
    return [
        {
            "objective": judgement.count.objective.label,
            "met": judgement.count.met,
            "missed": judgement.count.missed,
            "standing": judgement.standing,
        }
        for judgement in decision.judgements.get(workload, ())
    ]


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, dict) else {}
