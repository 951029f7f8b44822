# SPDX-License-Identifier: Apache-2.0
"""From the settings to the policy that they name."""

from headway_server.scheduler.batch_former import BatchFormer
from headway_server.scheduler.formation.dynamic import Dynamic
from headway_server.scheduler.formation.multi_bin import MultiBin
from headway_server.scheduler.formation.static import Static
from headway_server.scheduler.settings import Formation


def named_former(formation: Formation) -> BatchFormer | None:
    """None is continuous batching: nobody waits for a batch."""
    size, delay = formation.max_batch_size, formation.max_delay_seconds
    match formation.policy:
        case "Continuous":
            return None
        case "Static":
            return Static(size)
        case "Dynamic":
            return Dynamic(size, delay)
        case "MultiBin":
            return MultiBin(size, delay, formation.bins)
