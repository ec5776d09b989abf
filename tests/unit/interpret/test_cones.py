from __future__ import annotations

from typing import Any

import numpy as np

from tests.unit.interpret.test_field import halves, program, split_attention
from workbench.interpret.cones import ConeAxes, ConeDomain, cone_boxes, cone_sites
from workbench.interpret.floats import evaluate
from workbench.interpret.walk import walk
from workbench.ugraph import value as op
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph


def cones_of_output(graph: KernelGraph) -> Any:
    axes = ConeAxes.of(graph)
    domain = ConeDomain(axes)
    return axes, walk(graph, axes.inputs(graph), domain)[0]


def check_by_perturbation(graph: KernelGraph) -> None:
    """Every output element that changes with an input element has that element in its cone."""
    rng = np.random.default_rng(0)
    inputs = [0.3 * rng.standard_normal(t.shape) for t in graph.inputs]
    base = evaluate(graph, inputs)[0]
    axes, cones = cones_of_output(graph)
    for k, tensor in enumerate(graph.inputs):
        for index in np.ndindex(tensor.shape):
            moved = [x.copy() for x in inputs]
            moved[k][index] += 0.37
            changed = evaluate(graph, moved)[0] != base
            for n, (other, axis) in enumerate(axes.pairs):
                if other == k:
                    inside = (cones.bounds[2 * n] <= index[axis]) & (cones.bounds[2 * n + 1] >= index[axis])
                    assert not (changed & ~inside).any()


def test_cones_hold_what_perturbation_finds() -> None:
    check_by_perturbation(program(lambda X, W: op.rms_norm(X) @ W, X=(3, 4), W=(4, 2)))
    check_by_perturbation(program(lambda X, Y: op.concat(X, op.softmax(Y, axis=0), axis=-1), X=(3, 2), Y=(3, 4)))
    check_by_perturbation(split_attention(2, 2, 3, 6, 3, 2))
    for on_blocks in (False, True):
        check_by_perturbation(halves(on_blocks))


def test_rows_stay_apart() -> None:
    graph = program(lambda X, W: op.rms_norm(X) @ W, X=(3, 4), W=(4, 2))
    _, cones = cones_of_output(graph)
    assert cones.bounds[0][:, 0].tolist() == cones.bounds[1][:, 0].tolist() == [0, 1, 2]


def test_boxes_name_the_rows_of_a_radicand_at_both_levels() -> None:
    shapes = {"X": (6, 8), "W": (8, 4)}
    plain = program(lambda X, W: op.rms_norm(X, eps=0) @ W, **shapes)
    k = KernelBuilder()
    X, W = (k.input(name, shape) for name, shape in shapes.items())
    b = k.block(X, W, grid=(3, 2), loop=2)
    x, w = b.load(X, imap=(0,), fmap=1), b.load(W, imap=(None, 1), fmap=0)
    b.save(b.accumulate(x @ w) / b.accumulate(x, "rms"), omap=(0, 1))
    k.output(*b.finish())
    for graph in (plain, k.build()):
        axes = ConeAxes.of(graph)
        found: set[str] = set()
        for _, site in cone_sites(graph, axes):
            if site.bounds[0].size == 6:  # one radicand or denominator a row
                mask = np.zeros(site.bounds[0].shape, dtype=bool)
                mask.ravel()[4] = True
                found.update(str(box) for box in cone_boxes(axes, site, mask, len(graph.inputs)))
        assert found == {"{0: (slice(4, 5, None), slice(0, 8, None))}"}
        everything = {str(box) for _, site in cone_sites(graph, axes) for box in cone_boxes(axes, site, None, 2)}
        assert len(everything) >= 6
