# SPDX-License-Identifier: Apache-2.0
"""Which KV blocks are free. A block is a place for `block_size` tokens in every layer's KV tensor.

The scheduler counts blocks, this hands out the numbers; the two must agree, so running out
here is a bug and raises.
"""


class BlockPool:
    def __init__(self, blocks: int) -> None:
        self._free = list(range(blocks - 1, -1, -1))
        self.total = blocks

    @property
    def used(self) -> int:
        return self.total - len(self._free)

    def take(self, count: int) -> tuple[int, ...]:
        if count > len(self._free):
            raise RuntimeError(f"{count} KV blocks wanted, {len(self._free)} free")
        return tuple(self._free.pop() for _ in range(count))

    def give_back(self, blocks: tuple[int, ...]) -> None:
        self._free.extend(reversed(blocks))
