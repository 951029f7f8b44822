# SPDX-License-Identifier: Apache-2.0
"""From the settings to the policy that they name."""

import math

from headway_server.scheduler.batch_former import BatchFormer
from headway_server.scheduler.formation.dynamic import Dynamic
from headway_server.scheduler.formation.multi_bin import MultiBin
from headway_server.scheduler.settings import Formation

# A static batch is a dynamic one that nobody joins: it runs to the end of its longest answer.
NEVER = math.inf


def named_former(formation: Formation) -> BatchFormer | None:
    """None is continuous batching: nobody waits for a batch."""
    size, delay = formation.max_batch_size, formation.max_delay_seconds
    match formation.policy:
        case "Continuous":
            return None
        case "Static":
            return Dynamic(size, NEVER)
        case "Dynamic":
            return Dynamic(size, delay)
        case "MultiBin":
            return MultiBin(size, delay, formation.bins)
