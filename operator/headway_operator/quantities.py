# SPDX-License-Identifier: Apache-2.0
"""Kubernetes quantities as numbers: `1000m` is 1, and `1Gi` is 1024Mi."""

from decimal import Decimal, InvalidOperation
from typing import Any

_SUFFIXES = {
    "m": Decimal("0.001"),
    "": Decimal(1),
    **{suffix: Decimal(1000) ** n for n, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** n for n, suffix in enumerate("KMGTPE", start=1)},
}


def parse_quantity(quantity: Any) -> Decimal | None:
    """None for what is not a quantity."""
    text = str(quantity)
    digits = text.rstrip("mkKMGTPEi")
    factor = _SUFFIXES.get(text[len(digits) :])
    try:
        return None if factor is None else Decimal(digits) * factor
    except InvalidOperation:
        return None
