# SPDX-License-Identifier: Apache-2.0
"""Names for full KV blocks, by what is in them and in all blocks before.

Two blocks of one name hold the same KV. The names are keyed by tenant and salt with a secret of
the process, so that nobody can find, or by timing guess, what another tenant has asked.
"""

import hmac
from array import array
from collections.abc import Sequence
from hashlib import blake2b

DIGEST_BYTES = 16


def prefix_key(secret: bytes, tenant: str, salt: str) -> bytes:
    return hmac.digest(secret, f"{len(tenant)}:{tenant}{salt}".encode(), "sha256")


class PrefixChain:
    """`tokens` may grow, and only at its end; names are made when they are asked for."""

    def __init__(self, key: bytes, tokens: Sequence[int], block_size: int) -> None:
        self._key = key
        self._tokens = tokens
        self._block_size = block_size
        self._digests: list[bytes] = []

    @property
    def shareable(self) -> int:
        """Full blocks that leave at least one token to compute."""
        return (len(self._tokens) - 1) // self._block_size

    def digest(self, index: int) -> bytes:
        """Of the block with the tokens from `index * block_size`, all of which are known."""
        while len(self._digests) <= index:
            start = len(self._digests) * self._block_size
            block = self._tokens[start : start + self._block_size]
            previous = self._digests[-1] if self._digests else b""
            content = previous + array("I", block).tobytes()
            self._digests.append(blake2b(content, digest_size=DIGEST_BYTES, key=self._key).digest())
        return self._digests[index]
