# SPDX-License-Identifier: Apache-2.0
"""Whose KV blocks are whose, as far as the scheduler needs to know: by counting.

The engine's block pool is the real one; `CountedKv` stands in where there is no memory behind the
blocks. A promise sets blocks aside; which blocks they are is decided as the steps need them.
"""

from typing import Protocol


class KvSpace(Protocol):
    @property
    def free_blocks(self) -> int:
        """Promised to nobody. Blocks that only the prefix cache holds are free."""
        ...

    def cost(self, request_id: str, tokens: int) -> int:
        """Free blocks that `promise` would take: those of a prefix in use by others are shared."""
        ...

    def promise(self, request_id: str, tokens: int) -> int:
        """Sets blocks aside for the first `tokens` tokens; returns the tokens already there, at
        most all known tokens but one."""
        ...

    def extend(self, request_id: str, tokens: int) -> None:
        """Raises the promise to `tokens` tokens."""
        ...

    def release(self, request_id: str) -> None:
        """Gives the promise and the blocks back. Nothing happens where there are none."""
        ...


class CountedKv:
    """Nothing is ever shared or found again."""

    def __init__(self, blocks: int, block_size: int) -> None:
        self.free_blocks = blocks
        self._block_size = block_size
        self._promised: dict[str, int] = {}

    def cost(self, request_id: str, tokens: int) -> int:
        return -(-tokens // self._block_size)

    def promise(self, request_id: str, tokens: int) -> int:
        self.extend(request_id, tokens)
        return 0

    def extend(self, request_id: str, tokens: int) -> None:
        blocks = self.cost(request_id, tokens)
        more = blocks - self._promised.get(request_id, 0)
        if more > self.free_blocks:
            raise RuntimeError(f"{more} KV blocks wanted, {self.free_blocks} free")
        self.free_blocks -= more
        self._promised[request_id] = blocks

    def release(self, request_id: str) -> None:
        self.free_blocks += self._promised.pop(request_id, 0)
