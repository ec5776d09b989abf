"""Many points at once against one point at a time."""

from __future__ import annotations

import numpy as np
import pytest

from workbench import programs
from workbench.domains.field_pairs import FieldPair
from workbench.domains.finite_field import FieldArithmetic, random_elements
from workbench.errors import NotApplicableError
from workbench.interpret.field import FieldDomain, FieldPoint, evaluate_in_field
from workbench.ugraph import value as op
from workbench.ugraph.tracing import trace
from workbench.verify.many_points import ManyPoints, Trials, count_accepted

PAIR = FieldPair(47, 23, "p47")


def _taken(point: FieldPoint, number: int) -> FieldPoint:
    return FieldPoint(point.residues.map(lambda a: a[number]), None if point.real is None else point.real[number])


def test_each_point_is_evaluated_as_it_would_be_alone() -> None:
    def program(x: op.Value, w: op.Value, b: op.Value) -> op.Value:
        kept = op.concat(op.softmax(x @ w + b), op.relu(x) * 2, axis=-1)
        return op.transpose(kept) @ op.rms_norm(x) - op.max(op.reshape(w, (6,))) / 3

    graph = trace(program, x=(2, 3), w=(3, 2), b=(2,), dtype="float32")
    rng = np.random.default_rng(1)
    arithmetic = FieldArithmetic(PAIR, PAIR.random_omega(rng))
    points = [
        FieldPoint(random_elements(rng, (50, *t.shape), PAIR), rng.standard_normal((50, *t.shape)))
        for t in graph.inputs
    ]
    (many,) = evaluate_in_field(graph, points, ManyPoints(arithmetic, seed=3))
    for number in range(50):
        alone = [_taken(point, number) for point in points]
        (one,) = evaluate_in_field(graph, alone, FieldDomain(arithmetic, seed=3))
        np.testing.assert_array_equal(many.residues.p[number], one.residues.p)
        assert (many.residues.q is None) == (one.residues.q is None)


def test_equal_programs_always_agree() -> None:
    left = trace(lambda x, w: op.rms_norm(x, eps=0) @ w, x=(2, 3), w=(3, 2))
    right = trace(lambda x, w: (x @ w) / op.rms(x), x=(2, 3), w=(3, 2))
    trials = count_accepted(left, right, PAIR, 3000, np.random.default_rng(0))
    assert trials.accepted == trials.valid
    assert 0.03 < trials.valid / 3000 < 0.1  # two rows, a root of each on two sides: one point in 16


def test_different_programs_agree_as_often_as_counted_by_hand() -> None:
    """x y = 0 modulo both primes: (1 - (1 - 1/p)^2) (1 - (1 - 1/q)^2)."""
    left = trace(lambda x, y: x * y, x=(1,), y=(1,))
    right = trace(lambda x, y: 2 * (x * y), x=(1,), y=(1,))
    trials = count_accepted(left, right, PAIR, 60_000, np.random.default_rng(0))
    exact = (1 - (1 - 1 / 47) ** 2) * (1 - (1 - 1 / 23) ** 2)
    assert abs(trials.rate - exact) < 4 * trials.standard_error(exact)


def test_points_without_a_meaning_are_left_out() -> None:
    left = trace(lambda x: 1 / x, x=(1,))
    trials = count_accepted(left, left, PAIR, 20_000, np.random.default_rng(0))
    exact = (1 - 1 / 47) * (1 - 1 / 23)
    assert abs(trials.valid / 20_000 - exact) < 4 * np.sqrt(exact * (1 - exact) / 20_000)


def test_a_cell_can_be_held_fixed() -> None:
    left, right = (trace(fn, x=(1,)) for fn in (lambda x: op.relu(x), lambda x: x * 1))
    rng = np.random.default_rng(0)
    assert count_accepted(left, right, PAIR, 1000, rng, cell=[np.ones(1)]).rate == 1.0
    assert count_accepted(left, right, PAIR, 1000, rng, cell=[-np.ones(1)]).rate < 0.02


def test_block_graphs_are_refused() -> None:
    graph = programs.known_good("softmax", batch=2, hidden=8)[0]
    with pytest.raises(NotApplicableError, match="block graphs"):
        count_accepted(graph, graph, PAIR, 10, np.random.default_rng(0))


def test_no_valid_point_has_rate_zero() -> None:
    assert Trials(0, 0).rate == 0.0
    assert Trials(100, 25).standard_error(0.25) == pytest.approx(0.0433, abs=1e-4)
