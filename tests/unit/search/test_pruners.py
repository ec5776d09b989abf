"""Pruners: switched on one by one, each with its evidence, none losing what A_eq makes equal."""

from __future__ import annotations

import re
from typing import Any

import pytest

import workbench as wb
from tests.unit.search.prefix.programs import distributed, studied
from workbench.errors import UnknownNameError, UsageError
from workbench.search.events import Extended, Pruned
from workbench.search.prefix.engine import search
from workbench.search.prefix.prefixes import Prefix
from workbench.search.pruners.expression import AbstractExpression
from workbench.search.pruners.names import DEFAULT, pruner_names, pruners_of
from workbench.search.pruners.rule import VALUES, Pruner
from workbench.search.pruners.solvers import EgglogPruner, Z3Pruner
from workbench.search.pruners.structure import CostBound, Memory
from workbench.search.space import Space
from workbench.search.summary import Found, collect

SMALL = Space(max_block_ops=2, max_block_graphs=1, kernel_palette=(), max_kernel_ops=1)


def found(pruners: Any, space: Space = SMALL, **options: Any) -> Found:
    """Return what a search of the distributed program finds."""
    return collect(search(distributed(), space=space, pruners=pruners, quiet=True, **options), space)


def dropped(pruners: Any, rule: str, space: Space = SMALL) -> list[Pruned]:
    """Return what a rule drops."""
    events = search(distributed(), space=space, pruners=pruners)
    return [event for event in events if isinstance(event, Pruned) and event.rule == rule]


@pytest.mark.parametrize("name", [name for name in pruner_names() if name not in ("z3", "egglog")])
def test_each_pruner_alone_keeps_the_structures(name: str) -> None:
    everything = {one.structure_hash for one in found(["none"]).structures}
    assert everything
    alone = {one.structure_hash for one in found([name]).structures}
    assert {one.structure_hash for one in found(None).structures} <= alone <= everything


def test_each_pruner_drops_something_of_its_own_with_evidence() -> None:
    for name, word in [
        ("abstract_expression", "has|lies in no form|counts"),
        ("abstract_expression_by_sizes", "has|lies in no form|counts"),
        ("reducibility", "no output folds"),
        ("demand", "are left|unused"),
    ]:
        listed = dropped([name], name)
        assert listed, name
        assert all(re.search(word, event.evidence()) for event in listed[:40]), {e.evidence() for e in listed[:40]}
    by_axes, by_sizes = (found([name]).finished for name in ("abstract_expression", "abstract_expression_by_sizes"))
    assert by_axes is not None
    assert by_sizes is not None
    assert by_axes.states < by_sizes.states


def test_axes_drops_what_the_program_never_brings_together() -> None:
    from workbench.core.dtypes import DType
    from workbench.ugraph.builder import KernelBuilder

    kernel = KernelBuilder("sums")  # sum_h X + Y: no product has h and d
    x = kernel.input("X", (3, 5), DType.FLOAT32)
    w, y = kernel.input("W", (5, 7), DType.FLOAT32), kernel.input("Y", (3, 7), DType.FLOAT32)
    total = kernel.apply("sum", kernel.apply("exp", w), axis=0)
    kernel.output(kernel.apply("add", kernel.apply("add", y, total), kernel.apply("sum", x, axis=1)))
    events = list(search(kernel.build(), space=SMALL, pruners=["axes"], tests=False))
    listed = [event for event in events if isinstance(event, Pruned) and event.rule == "axes"]
    assert listed
    assert all("no product of the program has all of them" in event.evidence() for event in listed)


def test_memory_drops_what_no_tile_makes_small_enough() -> None:
    space = Space(max_block_ops=4, max_block_graphs=1, kernel_palette=(), max_kernel_ops=1)
    program = studied("gated_mlp")
    events = list(search(program, space=space, pruners=[AbstractExpression(), Memory(shared_bytes=1000)]))
    listed = [event for event in events if isinstance(event, Pruned) and event.rule == "memory" and event.prefix]
    assert listed
    assert "at least 4,096 B of 1,000 B" in listed[0].evidence()  # h is folded at once, whole in every tile
    looped = [e for e in events if isinstance(e, Extended) and e.operator.startswith("accumulate")]
    assert looped  # with a loop over it the tile may be as small as one likes


def test_cost_bound_cuts_what_cannot_be_better() -> None:
    def operators(prefix: Prefix) -> float:
        return float(prefix.operators)

    pruner = CostBound(operators, limit=2.0)
    assert not found([*DEFAULT, pruner]).structures
    pruner.limit = 3.0
    assert found([*DEFAULT, pruner]).structures
    with pytest.raises(UsageError, match="function"):
        CostBound(3)  # type: ignore[arg-type]


def test_names_are_objects_and_mistakes_are_one_line() -> None:
    assert tuple(pruner.name for pruner in pruners_of(None)) == DEFAULT
    own: Pruner = AbstractExpression("sizes")
    assert pruners_of([own, "demand"])[0] is own
    for wrong, error, words in [
        (["demnd"], UnknownNameError, "did you mean demand"),
        (["nothing like it"], UnknownNameError, "there are"),
        (["none", "demand"], UsageError, "stands alone"),
        (["demand", "demand"], UsageError, "given twice"),
        (["cost_bound"], UsageError, "needs a bound"),
    ]:
        with pytest.raises(error, match=words) as caught:
            pruners_of(wrong)
        assert "\n" not in str(caught.value)


def test_values_engine_takes_the_pruners_it_is_made_of_and_refuses_the_others() -> None:
    assert pruners_of([*DEFAULT, "memory"], engine=VALUES)
    with pytest.raises(UsageError, match="cannot do without demand"):
        pruners_of(DEFAULT[:-1], engine=VALUES)
    with pytest.raises(UsageError, match="z3 does not work with engine 'values'"):
        pruners_of([*DEFAULT, "z3"], engine=VALUES)
    program = distributed()
    events = wb.search(program, space=SMALL, engine="values", pruners=DEFAULT)
    assert collect(events, SMALL).structures
    with pytest.raises(UsageError):
        wb.search(program, space=SMALL, engine="values", pruners=["none"])


def test_z3_keeps_what_it_cannot_tell_and_dropping_it_loses_structures() -> None:
    pytest.importorskip("z3")
    everything = found(["none"])
    kept = found([Z3Pruner(seconds=2.0, total_seconds=1.0)])
    assert len(kept.structures) == len(everything.structures)
    lossy = found([Z3Pruner(seconds=2.0, total_seconds=0.0, undecided="drop")])
    assert not lossy.structures
    with pytest.raises(UsageError, match="use 'keep' or 'drop'"):
        Z3Pruner(undecided="guess")  # type: ignore[arg-type]


def test_egglog_keeps_what_it_cannot_tell() -> None:
    pytest.importorskip("egglog")
    everything = found(["none"])
    kept = found([EgglogPruner(rounds=2, total_seconds=0.5)])
    assert len(kept.structures) == len(everything.structures)
    proved = found([EgglogPruner(rounds=2, total_seconds=2.0, undecided="drop")])
    assert proved.finished is not None
    assert everything.finished is not None
    assert proved.finished.states < everything.finished.states
