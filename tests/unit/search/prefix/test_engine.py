"""The search by prefixes: agrees with the other engine, shows every step, starts anywhere, keeps what it is told to."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

import workbench as wb
from tests.unit.search.prefix.programs import distributed, quotient, studied
from workbench.errors import UnknownNameError, UsageError
from workbench.search.driver import drive
from workbench.search.events import Completed, Event, Extended, Finished, Pruned, Refused, Verified
from workbench.search.prefix.engine import prefix_work, search
from workbench.search.prefix.one_plan import PrefixSearch
from workbench.search.pruners.expression import AbstractExpression
from workbench.search.space import Space
from workbench.search.summary import collect
from workbench.ugraph.kernel_graph import KernelGraph


def one_block(operators: int, **more: Any) -> Space:
    """Return a space of one block graph without predefined kernels."""
    limits = {"max_block_ops": operators, "max_block_graphs": 1, "max_kernel_ops": 1, "kernel_palette": ()}
    return Space(**{**limits, "concatenation": False, **more})


def chains(operators: int) -> Space:
    """Return a space of up to two block graphs and predefined kernels."""
    return Space(max_block_ops=operators, max_block_graphs=2, max_kernel_ops=2, chains="all", concatenation=False)


def hashes(events: Any, space: Space) -> set[str]:
    """Return the structure hashes of what is verified."""
    return {found.structure_hash for found in collect(events, space).structures}


def events_of(operators: int = 3, **options: Any) -> list[Event]:
    """Return the events of a small search."""
    return list(search(distributed(), space=one_block(operators), **options))


def small(name: str) -> KernelGraph:
    """Return a studied program so small that every structure fits a block."""
    sizes: dict[str, dict[str, Any]] = {
        "gqa": {"context": 512},
        "gated_mlp_down": {"hidden": 256, "inner": 256, "out": 256},
    }
    return wb.programs.get(name, **sizes.get(name, {}))


@pytest.mark.parametrize(
    ("name", "operators"),
    [("gated_mlp", 6), ("lora", 6), ("softmax", 4), ("rms_norm_linear", 8), ("gqa", 6), ("gated_mlp_down", 6)],
)
def test_both_engines_find_the_same_structures_in_one_block_graph(name: str, operators: int) -> None:
    space, program = one_block(operators), small(name)
    by_values = hashes(wb.search(program, space=space, engine="values"), space)
    by_prefix = hashes(search(program, space=space, quiet=True), space)
    assert by_values
    assert by_prefix == by_values


@pytest.mark.parametrize(("name", "operators"), [("gated_mlp", 5), ("lora", 3), ("gated_mlp_down", 5)])
def test_both_engines_find_the_same_chains_with_predefined_kernels(name: str, operators: int) -> None:
    program = small(name)
    space = chains(operators)
    by_values = hashes(wb.search(program, space=space, engine="values"), space)
    assert by_values
    assert hashes(search(program, space=space, quiet=True), space) == by_values


@pytest.mark.parametrize("operators", [1, 2, 3, 4])
def test_both_engines_leave_out_the_same_products_of_a_library(operators: int) -> None:
    """A block graph that reads a product counts where it cannot make it within the limit, in either engine."""
    space = Space(max_block_ops=operators, max_block_graphs=1, max_kernel_ops=2, concatenation=False)
    left_out = 0
    for program in (
        wb.trace(lambda X, W: wb.exp(X @ W), X=(3, 8), W=(8, 7)),
        wb.trace(lambda X, W: (X @ W) / wb.sum(X), X=(3, 8), W=(8, 7)),
        wb.trace(lambda X, Y, W: (wb.square(X) + Y) @ W, X=(3, 8), Y=(3, 8), W=(8, 7)),
    ):
        found = collect(wb.search(program, space=space, engine="values"), space)
        by_values = {one.structure_hash for one in found.structures}
        assert hashes(search(program, space=space, quiet=True), space) == by_values
        every = hashes(wb.search(program, space=replace(space, chains="all")), space)
        assert by_values <= every
        assert len(every - by_values) <= found.pruned["chain: read from a library"]
        left_out += len(every - by_values)
        if operators == 1 and len(program.inputs) == 2 and "exp" in program.describe():
            assert len(by_values) == 1  # the library's product, then a block graph with the exponential
    assert bool(left_out) == (operators > 1)


def test_both_engines_agree_on_an_axis_that_a_second_kernel_holds_whole() -> None:
    # distances that counted a sum over each part of the axis as an operator of its own lost structures here
    program, space = small("gqa"), chains(7)
    by_prefix = hashes(search(program, space=space, quiet=True), space)
    assert len(by_prefix) == 88
    assert hashes(wb.search(program, space=space, engine="values"), space) == by_prefix


def test_quotient_by_a_later_tensor_is_not_lost() -> None:
    found = [event.graph for event in search(quotient(), space=one_block(2)) if isinstance(event, Verified)]
    texts = [graph.describe() for graph in found]
    assert any("square(" in text and "div(" in text for text in texts)  # the other is (X / Y) / Y


def test_every_structure_is_met_once_and_every_prefix_has_one_name() -> None:
    events = events_of()
    names = [event.prefix for event in events if isinstance(event, Extended)]
    assert len(names) == len(set(names))
    found = collect(events, one_block(3))
    assert len({one.structure_hash for one in found.structures}) == len(found.structures)


def test_quiet_search_counts_and_finds_the_same() -> None:
    space = one_block(6)
    program = studied("gated_mlp")
    loud, quiet = (list(search(program, space=space, quiet=quiet)) for quiet in (False, True))
    assert isinstance(loud[-1], Finished)
    assert loud[-1] == quiet[-1]
    said = Counter(event.rule for event in loud if isinstance(event, Pruned))
    assert said == Counter(loud[-1].pruned)
    completed = [[event.graph for event in events if isinstance(event, Completed)] for events in (loud, quiet)]
    assert completed[0] == completed[1]


def test_quiet_search_without_pruners_counts_the_same() -> None:
    loud, quiet = (events_of(2, pruners=["none"], quiet=quiet, tests=False) for quiet in (False, True))
    assert loud[-1] == quiet[-1]
    assert sum(isinstance(event, Extended) for event in loud) > 100


def test_events_have_what_a_stepper_shows() -> None:
    steps = [event for event in events_of(2) if isinstance(event, Extended)]
    added = next(event for event in steps if event.operator == "add" and event.operands == (1, 0))
    assert added.parent == added.prefix.rpartition("/")[0]
    assert added.expression() == "X + Y"
    assert "⟦" in added.goal()
    assert r"\boxed" in added.goal_latex()
    assert added.latex() == "X + Y"
    assert added.distance == 1
    lines = added.verdicts().splitlines()
    assert [line.split()[0] for line in lines] == ["abstract_expression", "axes", "reducibility", "demand"]
    assert all(" keeps: " in line for line in lines)


def test_what_is_pruned_says_which_rule_and_why() -> None:
    pruned = [event for event in events_of(2) if isinstance(event, Pruned)]
    squared = next(event for event in pruned if event.subject().startswith("square(0)"))
    assert squared.rule == "abstract_expression"
    assert squared.evidence() == "has 2 x X, no goal has more than 1"
    assert squared.prefix.startswith(squared.parent)
    assert {"reducibility", "abstract_expression"} <= {event.rule for event in pruned}
    assert all(event.evidence() for event in pruned)


def test_search_starts_from_a_prefix_and_keeps_what_it_is_told() -> None:
    events = events_of(2)
    added = next(e.prefix for e in events if isinstance(e, Extended) and e.operator == "add" and e.operands == (1, 0))
    inside = [e for e in events_of(2, start=added) if isinstance(e, Extended | Pruned)]
    assert inside
    assert all(event.prefix.startswith(added + "/") for event in inside if event.prefix)
    assert any(isinstance(event, Verified) for event in events_of(2, start=added))

    wrong = next(e.prefix for e in events if isinstance(e, Pruned) and e.subject().startswith("square(0)"))
    kept = events_of(2, keep=lambda name: name == wrong)
    assert any(isinstance(event, Extended) and event.prefix == wrong for event in kept)
    assert any(isinstance(event, Pruned) and event.parent == wrong for event in kept)
    names = {event.prefix for event in kept if isinstance(event, Extended)}
    assert names >= {event.prefix for event in events if isinstance(event, Extended)}


def test_prefix_is_found_again_by_name_and_looked_at() -> None:
    work = prefix_work(distributed(), one_block(2), None, None, 0)
    plan: PrefixSearch = work.plan(0)
    moment, high, low, move = next(
        c for c in plan.candidates(plan.root()) if c[3].label() == "add" and c[1:3] == (1, 0)
    )
    looked = plan.look(plan.root(), moment, high, low, move)
    assert not looked.dropped_by
    assert looked.expression() == "X + Y"
    prefix = plan.prefix(looked.name)
    assert prefix.name == looked.name
    assert prefix.operators == 1
    with pytest.raises(UsageError, match="nothing follows"):
        plan.prefix("0/1.0.-.999")
    with pytest.raises(UsageError, match=r"expected a name such as"):
        plan.prefix("what")


def test_search_without_pruners_finds_what_is_found_with_them_and_more() -> None:
    program = studied("softmax")
    space = one_block(3, palette=("exp", "sum", "div"))
    pruned = collect(search(program, space=space, quiet=True), space)
    free = collect(search(program, space=space, pruners=["none"], quiet=True), space)
    assert {one.structure_hash for one in pruned.structures} <= {one.structure_hash for one in free.structures}
    assert pruned.structures
    assert free.finished is not None
    assert pruned.finished is not None
    assert free.finished.states > 3 * pruned.finished.states
    assert len(free.refused) > len(pruned.refused)


def test_paper_form_keeps_more_than_axes_and_loses_nothing() -> None:
    program, space = studied("gated_mlp"), one_block(5)
    axes = collect(search(program, space=space, pruners=[AbstractExpression()], quiet=True), space)
    sizes = collect(search(program, space=space, pruners=[AbstractExpression("sizes")], quiet=True), space)
    assert {one.structure_hash for one in axes.structures} <= {one.structure_hash for one in sizes.structures}
    assert axes.finished is not None
    assert sizes.finished is not None
    assert sizes.finished.states > 10 * axes.finished.states


def test_time_limit_ends_every_plan_and_says_so() -> None:
    events = events_of(8, pruners=["none"], quiet=True, tests=False, seconds=0.05)
    assert any(isinstance(event, Pruned) and event.rule == "time" for event in events)


def test_own_verifier_is_asked() -> None:
    asked = []

    def verifier(program: object, candidate: object) -> Any:
        asked.append(candidate)
        from workbench.search.verdicts import Screening

        return Screening("different", "on principle")

    events = events_of(2, verifier=verifier)
    assert asked
    assert sum(isinstance(event, Refused) for event in events) == len(asked)


def test_work_travels_to_other_processes() -> None:
    work = prefix_work(distributed(), one_block(2), ["abstract_expression"], None, 0)
    (units,) = list(work.rounds())
    again = pickle.loads(pickle.dumps(units[0]))
    assert list(again.events({})) == list(units[0].events({}))
    assert list(drive(prefix_work(distributed(), one_block(2), None, None, 0)))[-1] == events_of(2)[-1]


def test_unknown_options_and_pruners_are_refused_in_one_line() -> None:
    with pytest.raises(UsageError, match="option 'fast'"):
        search(distributed(), fast=True)
    with pytest.raises(UnknownNameError, match="did you mean demand"):
        search(distributed(), pruners=["demands"])
    with pytest.raises(UsageError, match="plans"):
        search(distributed(), start="99")
