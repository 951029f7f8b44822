# SPDX-License-Identifier: Apache-2.0
"""Which KV block is whose, and which hold a prefix that may be used again.

A block is a place for `block_size` tokens in every layer's KV tensor. The scheduler is promised
numbers of blocks; which ones is decided when a step needs them. Blocks that nobody uses are free
even where their content can still be found; the longest unused go first.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from headway_server.engine.prefix import PrefixChain


@dataclass(slots=True)
class Holding:
    """One request's part of the pool. `promised` counts the blocks of `table` and those to come;
    the first `named` blocks of the table have been offered for reuse."""

    chain: PrefixChain | None
    table: list[int] = field(default_factory=list)
    promised: int = 0
    named: int = 0


class BlockPool:
    """The scheduler's `KvSpace`. Between `enter` and `forget` it knows a request; `chain` None
    keeps the request out of the prefix cache. It raises RuntimeError where the scheduler's count
    and its own do not agree."""

    def __init__(self, blocks: int, block_size: int) -> None:
        self.total = blocks
        self.evictions = 0
        self.queried_tokens = 0
        self.hit_tokens = 0
        self._block_size = block_size
        self._blank = list(range(blocks - 1, -1, -1))
        self._unused: OrderedDict[int, None] = OrderedDict()
        self._users = [0] * blocks
        self._digests: list[bytes | None] = [None] * blocks
        self._found: dict[bytes, int] = {}
        self._holdings: dict[str, Holding] = {}
        self._to_come = 0

    @property
    def used(self) -> int:
        """Blocks in somebody's table."""
        return self.total - len(self._blank) - len(self._unused)

    @property
    def free_blocks(self) -> int:
        return self.total - self.used - self._to_come

    def enter(self, request_id: str, chain: PrefixChain | None) -> None:
        self._holdings[request_id] = Holding(chain)

    def forget(self, request_id: str) -> None:
        self.release(request_id)
        self._holdings.pop(request_id, None)

    def cost(self, request_id: str, tokens: int) -> int:
        shared = sum(self._users[block] > 0 for block in self._prefix(request_id))
        return self._blocks_for(tokens) - shared

    def promise(self, request_id: str, tokens: int) -> int:
        holding = self._holdings[request_id]
        for block in self._prefix(request_id):
            self._unused.pop(block, None)
            self._users[block] += 1
            holding.table.append(block)
        holding.named = holding.promised = len(holding.table)
        self.extend(request_id, tokens)
        found = len(holding.table) * self._block_size
        if holding.chain:
            self.queried_tokens += holding.chain.shareable * self._block_size
            self.hit_tokens += found
        return found

    def extend(self, request_id: str, tokens: int) -> None:
        holding = self._holdings[request_id]
        more = self._blocks_for(tokens) - holding.promised
        if more > self.free_blocks:
            raise RuntimeError(f"{more} KV blocks wanted, {self.free_blocks} free")
        holding.promised += more
        self._to_come += more

    def release(self, request_id: str) -> None:
        """The end of a prefix is the first to be given to others."""
        holding = self._holdings.get(request_id)
        if holding is None:
            return
        self._to_come -= holding.promised - len(holding.table)
        for block in reversed(holding.table):
            self._users[block] -= 1
            if not self._users[block]:
                if self._digests[block] is None:
                    self._blank.append(block)
                else:
                    self._unused[block] = None
        holding.table = []
        holding.promised = holding.named = 0

    def table(self, request_id: str, tokens: int) -> list[int]:
        """The block table, long enough for the first `tokens` tokens. It may grow later."""
        holding = self._holdings[request_id]
        missing = self._blocks_for(tokens) - len(holding.table)
        if missing > 0:
            if len(holding.table) + missing > holding.promised:
                raise RuntimeError(f"{request_id} needs more KV blocks than it was promised")
            self._to_come -= missing
            for _ in range(missing):
                block = self._take()
                self._users[block] = 1
                holding.table.append(block)
        return holding.table

    def computed(self, request_id: str, tokens: int) -> None:
        """The KV of the first `tokens` tokens is there: full blocks of it can be found."""
        holding = self._holdings.get(request_id)
        if holding is None or holding.chain is None:
            return
        full = min(tokens // self._block_size, len(holding.table))
        for index in range(holding.named, full):
            digest, block = holding.chain.digest(index), holding.table[index]
            if digest not in self._found:
                self._found[digest] = block
                self._digests[block] = digest
        holding.named = max(holding.named, full)

    def _take(self) -> int:
        if self._blank:
            return self._blank.pop()
        block, _ = self._unused.popitem(last=False)
        digest = self._digests[block]
        if digest is not None:
            del self._found[digest]
            self._digests[block] = None
            self.evictions += 1
        return block

    def _prefix(self, request_id: str) -> list[int]:
        """The blocks of the longest prefix that is there, all but one token at most."""
        chain = self._holdings[request_id].chain
        blocks: list[int] = []
        if chain is None or not self._found:
            return blocks
        for index in range(chain.shareable):
            block = self._found.get(chain.digest(index))
            if block is None:
                break
            blocks.append(block)
        return blocks

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self._block_size)
