# SPDX-License-Identifier: Apache-2.0
"""A finished run as JSON and as a table. Pure; each figure stands at the top level by its name."""

from collections.abc import Sequence
from typing import Any

from headway_bench.engine.figures import Measured

SCHEMA_VERSION = 1
HEADINGS = ("figure", "value", "goal", "met", "spread")


def as_json(
    model: str,
    settings: dict[str, Any],
    machine: dict[str, Any],
    load_before: Sequence[float],
    load_after: Sequence[float],
    measured: Sequence[Measured],
) -> dict[str, Any]:
    return {
        "schemaVersion": SCHEMA_VERSION,
        "model": model,
        "settings": settings,
        "machine": machine,
        "loadAverage": {"before": list(load_before), "after": list(load_after)},
        **{figure.name: figure.value for figure in measured},
        "details": {figure.name: dict(figure.details) for figure in measured},
    }


def as_table(measured: Sequence[Measured]) -> str:
    rows = [HEADINGS, *(row_of(figure) for figure in measured)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def row_of(figure: Measured) -> tuple[str, ...]:
    goal = figure.goal
    met = "" if goal is None else "yes" if goal.met(figure.value) else "no"
    spread = figure.details.get("ratio", {}).get("spread")
    return (
        figure.name,
        f"{figure.value:.4g}",
        str(goal or ""),
        met,
        "" if spread is None else f"{spread:.0%}",
    )
