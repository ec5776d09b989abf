"""The canonical order: every graph once, none lost, names that can be read back."""

from __future__ import annotations

from itertools import permutations

import pytest

from tests.unit.search.prefix.programs import distributed, quotient
from workbench.errors import UsageError
from workbench.search.prefix.engine import prefix_work
from workbench.search.prefix.one_plan import PrefixSearch
from workbench.search.prefix.prefixes import Limits, Prefix, parse_name
from workbench.search.space import Space


def searched(operators: int, **options: object) -> PrefixSearch:
    space = Space(max_block_ops=operators, max_block_graphs=1, kernel_palette=(), max_kernel_ops=1)
    return prefix_work(quotient(), space, ["none"], None, 0, quiet=False, **options).plan(0)


def grown(search: PrefixSearch, prefix: Prefix, depth: int) -> list[Prefix]:
    """Return all prefixes of a depth below one."""
    if not depth:
        return [prefix]
    longer = []
    for moment, high, low, move in search.candidates(prefix):
        if search.growth.fits(prefix, move):
            made = search.growth.extend(prefix, moment, high, low, search._with_tensor(move), search.needed)
            longer += grown(search, made, depth - 1)
    return longer


def signature(prefix: Prefix) -> frozenset[tuple[object, ...]]:
    """Return a graph as the set of its operators, told by what they are made of and not by their order."""
    names: list[object] = [("input", n) for n in range(len(prefix.tensors) - prefix.operators)]
    for step in prefix.line():
        assert step.move is not None
        operands: list[object] = [names[position] for position in step.operands]
        if step.move.operator.spec.commutative:
            operands.sort(key=repr)
        names.append((str(step.move.operator), step.move.folded, *operands))
    return frozenset(names[-prefix.operators :])  # type: ignore[arg-type]


def test_every_graph_of_two_operators_has_one_order() -> None:
    search = searched(2)
    pairs = grown(search, search.root(), 2)
    signatures = [signature(prefix) for prefix in pairs]
    assert len(set(signatures)) == len(signatures)
    # none is lost: any two operators on inputs, and any operator on a first one
    single = [signature(prefix) for prefix in grown(search, search.root(), 1)]
    together = {one | two for one, two in permutations(single, 2)}
    assert together <= set(signatures)
    assert len(signatures) > len(together)


def test_steps_of_a_prefix_increase() -> None:
    search = searched(3)
    for prefix in grown(search, search.root(), 2):
        first, second = (step.step for step in prefix.line())
        assert first < second


def test_names_are_read_back() -> None:
    search = searched(2)
    for prefix in grown(search, search.root(), 2)[::50]:
        assert search.prefix(prefix.name).step == prefix.step
        number, steps = parse_name(prefix.name)
        assert number == 0
        assert steps == [step.step for step in prefix.line()]
    with pytest.raises(UsageError, match="belongs to plan"):
        search.prefix("1/1.0.-.0")


def test_limits_of_the_loop_and_after_it_are_counted_apart() -> None:
    space = Space(max_block_ops=6, max_block_graphs=1, kernel_palette=(), max_kernel_ops=1)
    work = prefix_work(distributed(), space, None, None, 0, limits=Limits(block=6, loop=2, after=1), quiet=True)
    looped = work.plan(1)
    assert looped.plan.loops != (None,)
    for prefix in grown(looped, looped.root(), 2)[::400]:
        after = sum(step.move is not None and step.move.kind == "accumulate" for step in prefix.line())
        assert prefix.loop_left + prefix.after_left == 1
        assert prefix.after_left >= 1 - after
