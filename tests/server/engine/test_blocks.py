# SPDX-License-Identifier: Apache-2.0
"""Blocks are counted rightly, shared only by whom they may be, and the longest unused go first."""

from collections import Counter
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headway_server.engine.blocks import BlockPool
from headway_server.engine.prefix import PrefixChain, prefix_key

SIZE = 4


def enter(
    pool: BlockPool,
    name: str,
    tokens: list[int],
    tenant: str = "t",
    salt: str = "",
    reserve: int = 4,
) -> int:
    """The request runs with all of its prompt computed; tells how much was there already."""
    chain = PrefixChain(prefix_key(b"secret", tenant, salt), tokens, SIZE)
    pool.enter(name, chain)
    cached = pool.promise(name, len(tokens) + reserve)
    pool.table(name, len(tokens))
    pool.computed(name, len(tokens))
    return cached


def found(pool: BlockPool, tokens: list[int]) -> int:
    """How much of the tokens is there, without computing the rest."""
    pool.enter("?", PrefixChain(prefix_key(b"secret", "t", ""), [*tokens, 0], SIZE))
    cached = pool.promise("?", len(tokens))
    pool.forget("?")
    return cached


def test_a_prompt_that_was_computed_is_found_again_even_while_its_request_runs() -> None:
    pool = BlockPool(20, SIZE)
    prompt = list(range(10))
    assert enter(pool, "a", prompt) == 0
    used = pool.used
    assert enter(pool, "b", prompt) == 8
    assert pool.used == used + 1
    assert pool.table("a", 10)[:2] == pool.table("b", 10)[:2]
    assert pool.table("a", 10)[2] != pool.table("b", 10)[2]
    pool.forget("a")
    pool.forget("b")
    assert pool.used == 0
    assert pool.free_blocks == 20
    assert enter(pool, "c", prompt) == 8


@pytest.mark.parametrize("length", [1, 4, 5, 8, 9])
def test_at_least_one_token_is_always_computed(length: int) -> None:
    pool = BlockPool(20, SIZE)
    prompt = list(range(length))
    enter(pool, "a", prompt)
    assert enter(pool, "b", prompt) == (length - 1) // SIZE * SIZE


def test_a_prefix_is_found_only_as_far_as_all_before_it_is_equal() -> None:
    pool = BlockPool(20, SIZE)
    enter(pool, "a", list(range(12)))
    assert enter(pool, "b", [*range(8), 7, 7, 7, 7, 7]) == 8
    assert enter(pool, "c", [9, *range(1, 12)]) == 0


def test_nobody_finds_what_another_tenant_or_salt_has_computed() -> None:
    pool = BlockPool(50, SIZE)
    prompt = list(range(13))
    enter(pool, "a", prompt, tenant="t1")
    assert enter(pool, "b", prompt, tenant="t2") == 0
    assert enter(pool, "c", prompt, tenant="t1", salt="s") == 0
    assert enter(pool, "d", prompt, tenant="t", salt="1") == 0
    assert enter(pool, "e", prompt, tenant="t1") == 12


def test_what_was_not_computed_is_not_found() -> None:
    pool = BlockPool(20, SIZE)
    prompt = list(range(12))
    pool.enter("a", PrefixChain(prefix_key(b"secret", "t", ""), prompt, SIZE))
    pool.promise("a", 16)
    pool.table("a", 12)
    pool.computed("a", 7)
    assert enter(pool, "b", prompt) == 4


def test_answers_are_found_too_for_the_next_round_of_a_conversation() -> None:
    pool = BlockPool(20, SIZE)
    tokens = list(range(6))
    enter(pool, "a", tokens, reserve=8)
    for token in (40, 41, 42):
        tokens.append(token)
        pool.table("a", len(tokens))
        pool.computed("a", len(tokens))
    pool.forget("a")
    assert enter(pool, "b", [*range(6), 40, 41, 42, 43]) == 8


def test_the_longest_unused_goes_first_and_the_end_of_a_prefix_before_its_beginning() -> None:
    pool = BlockPool(6, SIZE)
    for name, start in (("old", 0), ("new", 100)):
        enter(pool, name, list(range(start, start + 8)), reserve=0)
        pool.forget(name)
    enter(pool, "other", list(range(200, 212)), reserve=0)
    assert pool.evictions == 1
    pool.forget("other")
    assert found(pool, list(range(8))) == 4
    assert found(pool, list(range(100, 108))) == 8


def test_blank_blocks_are_taken_before_anything_is_forgotten() -> None:
    pool = BlockPool(8, SIZE)
    enter(pool, "a", list(range(12)), reserve=0)
    pool.forget("a")
    enter(pool, "b", list(range(100, 120)), reserve=0)
    assert pool.evictions == 0


def test_the_cost_is_what_a_promise_takes() -> None:
    pool = BlockPool(20, SIZE)
    prompt = list(range(13))
    enter(pool, "running", prompt)
    enter(pool, "gone", [*prompt[:8], *range(60, 70)])
    pool.forget("gone")
    for name, tokens in (("x", prompt), ("y", [*prompt[:8], *range(60, 70)])):
        pool.enter(name, PrefixChain(prefix_key(b"secret", "t", ""), tokens, SIZE))
        before, cost = pool.free_blocks, pool.cost(name, 30)
        pool.promise(name, 30)
        assert before - pool.free_blocks == cost < 8


def test_without_a_chain_nothing_is_shared_or_counted() -> None:
    pool = BlockPool(20, SIZE)
    for name in "ab":
        pool.enter(name, None)
        assert pool.promise(name, 12) == 0
        pool.table(name, 12)
        pool.computed(name, 12)
    assert pool.used == 6
    assert (pool.queried_tokens, pool.hit_tokens) == (0, 0)


def test_a_promise_beyond_what_is_free_is_a_bug_and_raises() -> None:
    pool = BlockPool(3, SIZE)
    pool.enter("a", None)
    with pytest.raises(RuntimeError, match="4 KV blocks wanted, 3 free"):
        pool.promise("a", 13)
    pool.promise("a", 8)
    with pytest.raises(RuntimeError, match="more KV blocks than it was promised"):
        pool.table("a", 9)


class PoolMachine(RuleBasedStateMachine):
    """`content` is what was written to each block, as a runner would do it."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(12, SIZE)
        self.tokens: dict[str, list[int]] = {}
        self.tenants: dict[str, str] = {}
        self.promised: dict[str, int] = {}
        self.written: dict[str, int] = {}
        self.content: dict[int, tuple[str, tuple[int, ...]]] = {}
        self.number = 0

    @rule(
        tenant=st.sampled_from("tu"),
        prompt=st.lists(st.integers(0, 1), min_size=1, max_size=20),
        reserve=st.integers(1, 8),
    )
    def arrive(self, tenant: str, prompt: list[int], reserve: int) -> None:
        self.number += 1
        name = f"r{self.number}"
        tokens = list(prompt)
        self.pool.enter(name, PrefixChain(prefix_key(b"secret", tenant, ""), tokens, SIZE))
        promised = len(tokens) + reserve
        before, cost = self.pool.free_blocks, self.pool.cost(name, promised)
        if cost > before:
            self.pool.forget(name)
            return
        cached = self.pool.promise(name, promised)
        assert cached < len(tokens)
        assert self.pool.free_blocks == before - cost
        self.tokens[name], self.tenants[name] = tokens, tenant
        self.promised[name], self.written[name] = promised, cached
        self.check_found(name, cached)

    def check_found(self, name: str, cached: int) -> None:
        for index, block in enumerate(self.pool.table(name, cached)):
            tenant, tokens = self.content[block]
            assert tenant == self.tenants[name]
            assert tokens == tuple(self.tokens[name][: (index + 1) * SIZE])

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), wanted=st.integers(1, 9), commits=st.booleans())
    def compute(self, data: st.DataObject, wanted: int, commits: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.tokens)))
        tokens = self.tokens[name]
        end = min(self.written[name] + wanted, len(tokens))
        table = self.pool.table(name, end)
        for position in range(self.written[name], end):
            block = table[position // SIZE]
            assert sum(block in self.pool.table(one, 0) for one in self.tokens) == 1
            self.content[block] = (self.tenants[name], tuple(tokens[: position + 1]))
        self.written[name] = end
        if commits:
            self.pool.computed(name, end)
        if end == len(tokens) and end < self.promised[name]:
            tokens.append(data.draw(st.integers(0, 1)))

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def grow(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.tokens)))
        if self.pool.free_blocks:
            self.promised[name] += SIZE
            self.pool.extend(name, self.promised[name])

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.tokens)))
        self.pool.forget(name)
        del self.tokens[name]

    @invariant()
    def nothing_is_lost(self) -> None:
        tables = {name: self.pool.table(name, 0) for name in self.tokens}
        used = Counter(block for table in tables.values() for block in table)
        assert self.pool.used == len(used)
        to_come = sum(
            -(-self.promised[name] // SIZE) - len(table) for name, table in tables.items()
        )
        assert self.pool.free_blocks == 12 - len(used) - to_come >= 0


PoolMachine.TestCase.settings = hypothesis_settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
TestPool: Callable[[], object] = PoolMachine.TestCase
