# SPDX-License-Identifier: Apache-2.0
"""The policies that form batches. Each says which of the waiting requests may go on to admission;
their order there, KV blocks and budgets stay the scheduler's affair."""

from headway_server.scheduler.formation.choice import named_former

__all__ = ["named_former"]
