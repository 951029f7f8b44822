# SPDX-License-Identifier: Apache-2.0
"""What a metrics provider answers, apart from how it is asked: decisions read only this."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """One series of an instant vector; `timestamp` is Unix seconds of the evaluation."""

    labels: Mapping[str, str]
    value: float
    timestamp: float
