from __future__ import annotations

import importlib.util
import json
import time
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.unit.verify.equality_cases import PIECEWISE_DIFFERENT, PIECEWISE_EQUAL, pair
from workbench.domains.exact_budget import Budget
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.verify.pieces import PieceReport, decide_pieces


def check_witness(report: PieceReport, left: KernelGraph, right: KernelGraph) -> None:
    witness = report.witness
    assert witness is not None
    values = [wb.evaluate(graph, witness.inputs)[witness.output][witness.index] for graph in (left, right)]
    assert np.isfinite(values).all()
    assert abs(values[0] - values[1]) > 1e-9 * max(map(abs, values))


@pytest.mark.parametrize("name", PIECEWISE_EQUAL)
def test_identities_hold_in_every_cell(name: str) -> None:
    report = decide_pieces(*pair(PIECEWISE_EQUAL[name]))
    assert report.kind == "equal", report.describe()
    assert report
    assert report.cells >= 1


@pytest.mark.parametrize("name", PIECEWISE_DIFFERENT)
def test_false_identities_fail_with_a_witness(name: str) -> None:
    left, right = pair(PIECEWISE_DIFFERENT[name])
    report = decide_pieces(left, right)
    assert report.kind == "different", report.describe()
    check_witness(report, left, right)


def test_the_report_says_how_many_cells_and_how() -> None:
    program = wb.trace(lambda x, y: wb.maximum(x * x, y * y), x=(1,), y=(1,))
    candidate = wb.trace(lambda x, y: wb.square(wb.maximum(wb.abs(x), wb.abs(y))), x=(1,), y=(1,))
    report = decide_pieces(program, candidate)
    # signs of x and y, and which is larger in size: 2 * 2 * 2 cells with a point; some are decided together
    assert 4 <= report.cells <= 8
    assert report.cells_infeasible >= 1
    assert f"{report.cells} decided" in report.describe()
    plain = json.loads(json.dumps(report.to_json()))
    assert (plain["kind"], plain["cells"], plain["shapes"]) == ("equal", report.cells, [[1], [1]])
    assert sum(count for way, count in report.ways.items() if way.startswith("infeasible")) == report.cells_infeasible


def test_equal_arguments_need_no_cell_by_cell_work() -> None:
    """64 ReLUs would have 2^64 cells; with equal arguments they are opaque values."""
    left = wb.trace(lambda x, w: wb.relu(x @ w) @ wb.transpose(w), x=(1, 2), w=(2, 64))
    right = wb.trace(lambda x, w: wb.relu(2 * x @ w) @ wb.transpose(w) / 2, x=(1, 2), w=(2, 64))
    report = decide_pieces(left, right)
    assert report.kind == "equal", report.describe()
    assert report.cells <= 2


def online_softmax(forget_rescale: bool, ragged: bool = False) -> KernelGraph:
    context = 5 if ragged else 6
    kernel = KernelBuilder("online")
    scores, values = kernel.input("S", (2, context)), kernel.input("V", (context, 2))
    block = kernel.block(scores, values, grid=(1,), loop=3)
    s, v = block.load(scores, fmap=1), block.load(values, fmap=0)
    largest, shift = block.running_max(s)
    weights = wb.exp(s - largest)
    rescale = wb.exp(shift * 0 if forget_rescale else shift)
    product = block.accumulate(weights @ v, "rescale", rescale=rescale)
    total = block.accumulate(weights, "rescale_sum", rescale=rescale)
    block.save(product / total)
    kernel.output(*block.finish())
    return kernel.build()


@pytest.mark.parametrize("ragged", [False, True])
def test_online_softmax_with_a_running_maximum(ragged: bool) -> None:
    context = 5 if ragged else 6
    program = wb.trace(lambda S, V: wb.softmax(S) @ V, S=(2, context), V=(context, 2))
    report = decide_pieces(program, online_softmax(False, ragged))
    assert report.kind == "equal", report.describe()
    wrong = online_softmax(True, ragged)
    refused = decide_pieces(program, wrong)
    assert refused.kind == "different"
    check_witness(refused, program, wrong)


def test_a_maximum_over_tiles_is_the_maximum() -> None:
    kernel = KernelBuilder("tiled maximum")
    x = kernel.input("x", (2, 6))
    block = kernel.block(x, grid=(2,), loop=3)
    tile = block.load(x, imap=(0,), fmap=1)
    block.save(block.accumulate(wb.max(tile * tile), "max"), omap=(0,))
    kernel.output(*block.finish())
    program = wb.trace(lambda x: wb.max(wb.square(x)), x=(2, 6))
    assert decide_pieces(program, kernel.build()).kind == "equal"


def test_the_maximum_of_an_empty_tile_is_no_value() -> None:
    """Five elements cut into four tiles of two: the last tile is empty, and its maximum is stored."""
    kernel = KernelBuilder("empty tile")
    x = kernel.input("x", (2, 5))
    block = kernel.block(x, grid=(4,))
    block.save(wb.max(block.load(x, imap=(1,))), omap=(1,))
    kernel.output(*block.finish())
    graph = kernel.build()
    report = decide_pieces(graph, graph)
    assert report.kind == "undecided"
    assert "empty tile" in report.reason


def test_what_holds_on_most_cells_is_not_equal() -> None:
    """The middle of five with one comparator left out: wrong in a few orders of the inputs only."""

    def sort(values: list[Any], comparators: list[tuple[int, int]]) -> list[Any]:
        for i, j in comparators:
            low, high = wb.minimum(values[i], values[j]), wb.maximum(values[i], values[j])
            values[i], values[j] = low, high
        return values

    network = [(0, 1), (2, 3), (0, 2), (1, 3), (1, 2)]  # sorts four (Knuth, volume 3, 5.3.4)

    def program(comparators: list[tuple[int, int]]) -> KernelGraph:
        def function(x: Any) -> Any:
            parts = list(wb.split(x, parts=4, axis=-1))
            return wb.concat(*sort(parts, comparators), axis=-1)

        return wb.trace(function, x=(1, 4))

    other = [(0, 2), (1, 3), (0, 1), (2, 3), (1, 2)]
    report = decide_pieces(program(network), program(other))
    assert report.kind == "equal", report.describe()
    missing = program(network[:-1])
    refused = decide_pieces(program(network), missing)
    assert refused.kind == "different"
    check_witness(refused, program(network), missing)


def test_too_many_cells_are_undecided_in_time() -> None:
    def even(x: Any) -> Any:
        return wb.sum(wb.exp(wb.abs(x)) + wb.exp(-wb.abs(x)))

    left = wb.trace(even, x=(1, 14))  # 2^14 cells, none of which can be dropped
    right = wb.trace(lambda x: wb.sum(wb.exp(x) + wb.exp(-x)), x=(1, 14))
    for budget, word in ((Budget(seconds=0.5), "time"), (Budget(cells=20), "cells")):
        start = time.process_time()
        report = decide_pieces(left, right, budget)
        assert time.process_time() - start < 4
        assert report.kind == "undecided"
        assert word in report.reason
        assert "output 0[0, 0]" in report.reason


def test_without_z3_nonlinear_cells_are_undecided_and_never_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    report = decide_pieces(*pair(PIECEWISE_EQUAL["a positive form"]))
    assert report.kind == "undecided"
    assert "no real point" in report.reason
    for name in (
        "|xy| = |x| |y|",
        "the median does not depend on the order",
        "the largest square",
        "e^x is above 1 + x",
    ):
        report = decide_pieces(*pair(PIECEWISE_EQUAL[name]))  # signs and linear programs suffice
        assert report.kind == "equal", report.describe()
