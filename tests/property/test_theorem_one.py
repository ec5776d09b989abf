"""Theorem 1: nothing is lost that brute force verifies and whose expression equals the program's under A_eq."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.property.brute_force import Oracle, Program, find, random_program
from tests.property.theorem_one import ENGINES, Comparison, compare, graph_of

SEEDS = range(2000, 2025)
"""A few here; `benchmarks/theorem_one.py` compares hundreds."""


def _compared(seed: int) -> Comparison | None:
    program = random_program(random.Random(seed), 2 + seed % 2)
    return None if program is None else compare(program, 3)


def test_nothing_is_lost_on_random_programs() -> None:
    found = [made for made in map(_compared, SEEDS) if made is not None]
    assert len(found) >= 10
    assert sum(made.expected for made in found) >= 20
    lost = [(str(made.program), *each) for made in found for each in made.lost]
    unknown = [(str(made.program), *each) for made in found for each in made.extra]
    assert not lost
    assert not unknown


@pytest.mark.parametrize(
    "program",
    [
        # (X + Y) W: the lecture's question which prefixes are of use; distributed, and common factor
        Program({"X": "bh", "Y": "bh", "W": "hd"}, (("add", ("X", "Y"), ""), ("matmul", ("t0", "W"), "h"))),
        # X / rms-like: a root of a sum, kept or pulled out of the product
        Program({"X": "bh"}, (("square", ("X",), ""), ("sum", ("t0",), "h"), ("sqrt", ("t1",), ""), ("div", ("X", "t2"), ""))),
        # exp of a sum, and the sum of exps
        Program({"X": "bh", "Y": "bh"}, (("add", ("X", "Y"), ""), ("exp", ("t0",), ""), ("sum", ("t1",), "h"))),
    ],
    ids=str,
)  # fmt: skip
def test_nothing_is_lost_on_chosen_programs(program: Program) -> None:
    found = compare(program, 3 if len(program.nodes) < 4 else 4)
    assert found is not None
    assert found.expected
    assert not found.lost
    assert not found.extra


def test_what_cancels_is_counted_apart() -> None:
    found = find(Program({"X": "bh"}, (("sum", ("X",), "h"),)), [None], 3)
    assert found.sizes  # sum(X)
    assert found.cancelled  # sum(X X / X)


def test_oracle_holds_that_nothing_cancels_and_that_sums_distribute() -> None:
    program = Program({"X": "bh", "Y": "bh"}, (("add", ("X", "Y"), ""), ("sum", ("t0",), "h")))
    oracle = Oracle(program, None, 1)
    x, y = oracle.starts
    product = oracle._made("mul", (x, y), frozenset(), x.stage)
    quotient = oracle._made("div", (product, y), frozenset(), x.stage)
    np.testing.assert_allclose(oracle.value(quotient)[0], oracle.value(x)[0])
    assert oracle.print(quotient) != oracle.print(x)
    parts = [oracle._made("sum", (one,), frozenset({"h"}), x.stage) for one in (x, y)]
    assert oracle.is_same_expression(oracle._made("add", (parts[0], parts[1]), frozenset(), x.stage))
    roots = [oracle._made("sqrt", (one,), frozenset(), x.stage) for one in (x, y, product)]
    assert oracle.print(oracle._made("mul", (roots[0], roots[1]), frozenset(), x.stage)) == oracle.print(roots[2])
    powers = [oracle._made("exp", (one,), frozenset(), x.stage) for one in (x, y)]
    summed = oracle._made("exp", (oracle._made("add", (x, y), frozenset(), x.stage),), frozenset(), x.stage)
    assert oracle.print(oracle._made("mul", (powers[0], powers[1]), frozenset(), x.stage)) == oracle.print(summed)


def test_comparison_notices_what_an_engine_loses(monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.search.prefix.prefixes import Order

    pairs = Order.pairs
    monkeypatch.setattr(Order, "pairs", lambda self, prefix: (p for p in pairs(self, prefix) if p[3] != p[1] - 1))
    program = Program({"X": "bh", "Y": "bh"}, (("add", ("X", "Y"), ""), ("sum", ("t0",), "h")))
    found = compare(program, 3)
    assert found is not None
    assert {engine for engine, _, _ in found.lost} == {"prefix"}


def test_graph_of_a_program_computes_it() -> None:
    program = Program({"X": "bh", "W": "hd"}, (("matmul", ("X", "W"), "h"), ("exp", ("t0",), "")))
    assert graph_of(program).outputs[0].shape == (3, 7)
    assert ENGINES == ("values", "prefix")
