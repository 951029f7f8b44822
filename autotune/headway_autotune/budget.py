# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of one step of a token budget. Nothing here knows why the budget moves.

Bounds win over the size of a step: a budget found outside them goes to the nearest bound and no
further. None means that no such step exists.
"""


def raised(budget: int, *, tokens: int, lowest: int, highest: int) -> int | None:
    """Up by at most `tokens`; the result is above `budget` and within `lowest..highest`."""
    target = lowest if budget < lowest else min(budget + tokens, highest)
    return target if budget < target <= highest else None


def lowered(budget: int, *, tokens: int, lowest: int, highest: int) -> int | None:
    """Down by at most `tokens`; the result is below `budget` and within `lowest..highest`."""
    target = highest if budget > highest else max(budget - tokens, lowest)
    return target if lowest <= target < budget else None
