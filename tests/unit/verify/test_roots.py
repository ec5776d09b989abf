"""What roots cost: closed cases, refusals, and shares of squares counted point by point in small fields."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from workbench.core.shapes import Shape
from workbench.domains.field_pairs import field_pair, is_square
from workbench.domains.residues import Modulus
from workbench.ugraph import value as op
from workbench.ugraph.tracing import trace
from workbench.ugraph.value import Value
from workbench.verify.elements import elements_of
from workbench.verify.forms import Forms
from workbench.verify.roots import RootCost, Roots, rank_over_two

Program = Callable[..., Value]
W31 = Modulus(field_pair("w31").p)


def cost(program: Program, shapes: dict[str, Shape], modulus: Modulus = W31) -> RootCost:
    """Return the cost of the roots of a program's first output."""
    forms = Forms()
    elements = elements_of(trace(program, dtype="float32", **shapes), forms)
    conditions = [radicand for radicand, _ in elements.radicands]
    return Roots(forms, conditions, modulus, "p", 0).cost(elements.outputs)


# name -> program, shapes, roots that an element rests on, most in one block of inputs
COUNTED: dict[str, tuple[Program, dict[str, Shape], int, int]] = {
    "no root": (lambda x: x * x, {"x": (2, 3)}, 0, 0),
    "RMS norm": (lambda x, w: op.rms_norm(x) @ w, {"x": (4, 64), "w": (64, 3)}, 1, 1),
    "layer norm": (lambda x: op.layer_norm(x), {"x": (4, 64)}, 1, 1),
    "the same root twice": (lambda x: op.rms_norm(x) + op.rms_norm(2 * x, eps=4e-6), {"x": (4, 64)}, 1, 1),
    "normalised rows, added up": (lambda x: op.sum(op.l2_norm(x), axis=-2), {"x": (50, 4)}, 50, 1),
    "normalised keys, summed": (lambda q, k: q @ (k / op.rms(k, axis=-2)), {"q": (2, 3), "k": (3, 40)}, 1, 1),
    "roots of elements": (lambda x, w: op.sqrt(x) @ w, {"x": (4, 30), "w": (30, 3)}, 30, 1),
    "norm of a step from a norm": (
        lambda h, x, a: op.l2_norm(x + a * (op.l2_norm(h) - x)),
        {"h": (2, 8), "x": (2, 8), "a": (2, 8)},
        2,
        2,
    ),
    "product of roots and root of the product": (
        lambda x, y: op.sqrt(x) * op.sqrt(y) - op.sqrt(x * y),
        {"x": (3,), "y": (3,)},
        2,
        1,
    ),
    "root of a quotient": (lambda x, y: op.sqrt(x) / op.sqrt(y) - op.sqrt(x / y), {"x": (3,), "y": (3,)}, 2, 1),
}


@pytest.mark.parametrize("name", COUNTED)
def test_roots_are_counted_per_element_and_per_block(name: str) -> None:
    program, shapes, in_cone, together = COUNTED[name]
    found = cost(program, shapes)
    assert not found.reason
    assert not found.assumptions
    assert (found.in_cone, found.together) == (in_cone, together)
    assert found.factor == pytest.approx(4.0**together, rel=1e-6)


REFUSED: dict[str, tuple[Program, str]] = {
    "perfect square": (lambda x, y: op.sqrt(op.square(x)) + y, "perfect square"),
    "square times a rooted factor": (
        lambda x, y: op.sqrt(op.square(x) * y) * op.sqrt(x) * op.sqrt(y),
        "absolute value",
    ),
    "the product of two is a square, unseen": (
        lambda x, y: op.sqrt(op.square(x) + op.square(y)) * op.sqrt(op.square(x + y) - 2 * (x * y)),
        "not shown to be independent",
    ),
    "a square that is not written as one": (
        lambda x, y: op.sqrt(op.square(x) + 2 * (x * y) + op.square(y)),
        "not shown to be independent",
    ),
    "root of a piece": (lambda x, y: op.sqrt(op.relu(x) + y), "piecewise"),
    "root of a number that has none": (lambda x, y: op.sqrt(0 * x + 29) + y, "the root of 29 does not exist"),
    "too many roots of one input": (
        lambda x, y: op.sum(op.sqrt(x + op.sum(x)) + y),
        "12 roots share inputs",
    ),
    "roots that cancel but condition": (
        lambda x, y: op.sqrt(x @ op.transpose(y)) * op.sqrt(x @ op.transpose(y)) @ y,
        "cancel",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_no_number_without_independence(name: str) -> None:
    program, reason = REFUSED[name]
    assert not is_square(29, W31.m)
    assert reason in cost(program, {"x": (2, 12), "y": (2, 12)}).reason


def test_constants_must_be_squares_where_one_root_is_a_multiple_of_another() -> None:
    w61 = Modulus(field_pair("w61").p)
    assert not is_square(17, w61.m)
    program: Program = lambda x: op.rms_norm(17 * x, eps=0) - op.rms_norm(x, eps=0)  # noqa: E731
    assert "17 is no square" in cost(program, {"x": (2, 8)}, w61).reason
    assert not cost(program, {"x": (2, 8)}).reason  # it is one modulo the prime of 31 bits


def test_inputs_shared_by_the_roots_of_several_rows_are_named() -> None:
    found = cost(lambda x, w: op.rms_norm(x @ w), {"x": (4, 8), "w": (8, 8)})
    assert not found.reason
    assert len(found.assumptions) == 1
    assert "several elements" in found.assumptions[0]


def test_a_root_that_cancels_still_conditions_its_input() -> None:
    found = cost(lambda x: op.sqrt(x) * op.sqrt(x), {"x": (3,)})
    assert (found.in_cone, found.together) == (0, 1)
    assert found.tensors == {0}


def test_a_condition_on_another_input_costs_nothing() -> None:
    forms = Forms()
    elements = elements_of(trace(lambda x, y: (x * x, op.sqrt(y)), x=(3,), y=(3,)), forms)
    conditions = [radicand for radicand, _ in elements.radicands]
    assert Roots(forms, conditions, W31, "p", 0).cost(elements.outputs[:1]).factor == 1.0
    assert Roots(forms, conditions, W31, "p", 0).cost(elements.outputs[1:]).factor > 3.9


def test_no_root_where_minus_one_is_a_square() -> None:
    assert "1 mod 4" in cost(lambda x: op.rms_norm(x), {"x": (2, 3)}, Modulus(13)).reason


SHARES: dict[str, tuple[Program, Callable[..., object], int]] = {
    "element": (lambda x: op.sqrt(x), lambda x: x[0], 1),
    "sum of two squares": (lambda x: op.l2_norm(x), lambda x: x[0] ** 2 + x[1] ** 2, 2),
    "sum of three squares and one": (lambda x: op.l2_norm(x, eps=1), lambda x: (x**2).sum(0) + 1, 3),
    "product and square": (lambda x: op.sqrt(op.square(op.sum(x)) + 1) + x, lambda x: x.sum(0) ** 2 + 1, 2),
}


@pytest.mark.parametrize("m", [23, 47])
@pytest.mark.parametrize("name", SHARES)
def test_the_share_of_squares_is_at_least_what_is_claimed(name: str, m: int) -> None:
    program, radicand, length = SHARES[name]
    found = cost(program, {"x": (1, length)}, Modulus(m))
    points = np.stack(np.meshgrid(*[np.arange(m)] * length, indexing="ij")).reshape(length, -1)
    squares = np.isin(np.asarray(radicand(points)) % m, np.arange(m) ** 2 % m)
    assert not found.reason
    assert squares.mean() >= 2 / found.factor - 1e-12  # factor = 2 / share
    assert squares.mean() <= 1.6 * 2 / found.factor  # and not much more


@pytest.mark.parametrize("m", [23, 47, 1439])
def test_the_share_in_closed_form(m: int) -> None:
    """x_1^2 + c: half of the m - 1; leading coefficient 1 and discriminant -4 c of degree 2 vanish in 2 of m at most."""
    found = cost(lambda x: op.l2_norm(x), {"x": (1, 3)}, Modulus(m))
    assert 2 / found.factor == pytest.approx(0.5 * (1 - 1 / m) * (1 - 2 / m))
    linear = cost(lambda x, y: op.sqrt(x * y), {"x": (3,), "y": (3,)}, Modulus(m))
    assert 2 / linear.factor == pytest.approx(0.5 * (1 - 1 / m))


def test_rank_of_bit_vectors() -> None:
    assert rank_over_two([0b011, 0b101, 0b110]) == 2
    assert rank_over_two([0b001, 0b011, 0b111]) == 3
    assert rank_over_two([]) == 0
