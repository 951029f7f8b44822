# SPDX-License-Identifier: Apache-2.0
"""A step that was launched and not settled yet, with all that settling it needs."""

from dataclasses import dataclass

from headway_server.engine.sequence import Sequence
from headway_server.runner.protocol import Row, Step
from headway_server.scheduler import Plan


@dataclass(frozen=True, slots=True)
class Flight:
    """`rows` and `sequences` go together, in the order of the plan's requests."""

    plan: Plan
    rows: list[Row]
    sequences: list[Sequence]
    step: Step
    started: float

    @property
    def may_be_followed(self) -> bool:
        """Whether the next step can be made before this one's tokens are here."""
        return not any(sequence.needs_its_last_token for sequence in self.sequences)
