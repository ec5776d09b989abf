"""Degrees and heights against polynomials that are multiplied out, and in closed cases."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from math import log2

import pytest

from tests.unit.verify.polynomials import Polynomial, expand
from workbench.core.shapes import Shape
from workbench.ugraph import value as op
from workbench.ugraph.tracing import trace
from workbench.ugraph.value import Value
from workbench.verify.degrees import Degrees, Size, added, one_of
from workbench.verify.elements import elements_of
from workbench.verify.forms import Forms

Program = Callable[..., Value]


def sizes(program: Program, **shapes: Shape) -> tuple[Size, Size]:
    """Return bounds on numerator and denominator of an output element."""
    forms = Forms()
    (form,) = elements_of(trace(program, dtype="float32", **shapes), forms).outputs
    ratio = Degrees(forms, None).of(form)
    return ratio.numerator, ratio.poles


DEGREES: dict[str, tuple[Program, dict[str, Shape], int, int]] = {
    "chain of three matrices": (lambda x, w, v: x @ w @ v, {"x": (2, 8), "w": (8, 5), "v": (5, 3)}, 3, 0),
    "rows divided by their sum, then contracted": (
        lambda x, w: (x / op.sum(x)) @ w,
        {"x": (2, 64), "w": (64, 3)},
        2,
        1,
    ),
    "columns divided by different sums": (
        lambda x, w: (x / op.sum(op.square(x), axis=-2)) @ w,
        {"x": (2, 4), "w": (4, 3)},
        2 + 3 * 2,  # x w times the three other denominators of degree 2
        4 * 2,
    ),
    "sum of two quotients": (lambda x, y, z: x / z + y / z, {"x": (2,), "y": (2,), "z": (2,)}, 1, 1),
    "sum of unlike quotients": (lambda x, y, z: x / y + x / z, {"x": (2,), "y": (2,), "z": (2,)}, 2, 2),
    "quotient of quotients": (lambda x, y: (x / y) / (y / x), {"x": (2,), "y": (2,)}, 2, 2),
    "RMS norm and linear": (lambda x, w: op.rms_norm(x) @ w, {"x": (2, 64), "w": (64, 3)}, 2, 1),
    "RMS norm twice, of itself": (lambda x: op.rms_norm(op.rms_norm(x, eps=0), eps=1), {"x": (2, 9)}, 1, 1),
    "powers": (lambda x: op.pow(x, 3) / op.pow(x + 1, 4), {"x": (2,)}, 3, 4),
}


@pytest.mark.parametrize("name", DEGREES)
def test_degrees_in_closed_cases(name: str) -> None:
    program, shapes, above, below = DEGREES[name]
    numerator, denominator = sizes(program, **shapes)
    assert (numerator.degree, denominator.degree) == (Fraction(above), Fraction(below))


HEIGHTS: dict[str, tuple[Program, dict[str, Shape], int]] = {
    "matmul of inputs": (lambda x, w: x @ w, {"x": (2, 1000), "w": (1000, 3)}, 1),
    "sum of squares": (lambda x: op.sum(op.square(x)), {"x": (2, 1000)}, 1),
    "mean of squares": (lambda x: op.mean(op.square(x)), {"x": (2, 1000)}, 1),  # times 1000
    "mean of squares and eps": (lambda x: op.mean(op.square(x)) + 1e-6, {"x": (2, 1000)}, 1000),  # times 1e6
    "constant": (lambda x: 12345 * x, {"x": (2,)}, 12345),
    "fractions": (lambda x, y: x / 6 + y / 10, {"x": (2,), "y": (2,)}, 5),  # times 30
}


@pytest.mark.parametrize("name", HEIGHTS)
def test_heights_in_closed_cases(name: str) -> None:
    program, shapes, height = HEIGHTS[name]
    numerator, _ = sizes(program, **shapes)
    assert numerator.height == pytest.approx(log2(height))


def random_program(rng: random.Random, depth: int) -> Program:
    """Return a random polynomial program over x and y of shape (2, 2)."""
    if depth == 0:
        return rng.choice([lambda x, y: x, lambda x, y: y])
    left, right = random_program(rng, depth - 1), random_program(rng, depth - 1)
    factor = rng.choice([Fraction(2), Fraction(-3), Fraction(1, 2), Fraction(5, 6)])
    return rng.choice(
        [
            lambda x, y: left(x, y) + right(x, y),
            lambda x, y: left(x, y) - right(x, y),
            lambda x, y: left(x, y) * right(x, y),
            lambda x, y: left(x, y) @ right(x, y),
            lambda x, y: op.scale(left(x, y), factor),
            lambda x, y: op.square(left(x, y)),
            lambda x, y: op.broadcast(op.mean(left(x, y)), (2, 2)),
            lambda x, y: op.transpose(left(x, y)) + Fraction(1, 3),
            lambda x, y: op.concat(left(x, y), right(x, y)) @ op.concat(y, x, axis=-2),
        ]
    )


@pytest.mark.parametrize("seed", range(40))
def test_no_coefficient_and_no_degree_exceeds_the_bound(seed: int) -> None:
    program = random_program(random.Random(seed), 3)
    graph = trace(program, x=(2, 2), y=(2, 2), dtype="float32")
    forms = Forms()
    (form,) = elements_of(graph, forms).outputs
    size = Degrees(forms, None).of(form).size
    for element in expand(graph)[0].ravel():
        exact = Polynomial.of(element)
        if not exact.terms:
            continue
        assert exact.degree <= size.degree
        assert size.content % exact.denominator == 0
        coefficients = [abs(c * size.content) for c in exact.terms.values()]
        assert log2(max(coefficients)) <= size.height + 1e-9
        assert log2(sum(coefficients)) <= size.norm + 1e-9


def test_coefficients_of_products_with_common_variables_add_up() -> None:
    numerator, _ = sizes(lambda x, y: (x + y) * (x + 2 * y), x=(2,), y=(2,))  # x^2 + 3 x y + 2 y^2
    assert log2(3) <= numerator.height <= log2(6)
    numerator, _ = sizes(lambda x, w: op.sum(x) * op.sum(x * w), x=(2, 50), w=(2, 50))
    assert 0 <= numerator.height <= log2(50)
    apart, _ = sizes(lambda x, y: op.sum(x) * op.sum(y), x=(2, 50), y=(2, 50))
    assert apart.height == 0.0


def test_what_two_programs_divide_by_alike_counts_once() -> None:
    forms = Forms()
    left, right = (
        elements_of(trace(program, x=(2, 64), w=(64, 3), dtype="float32"), forms).outputs[0]
        for program in (lambda x, w: op.rms_norm(x) @ w, lambda x, w: (x @ w) / op.rms(x, eps=1e-6))
    )
    assert Degrees(forms, None).difference(left, right).degree == 2
    other = elements_of(trace(lambda x, w: (x @ w) / op.sum(x), x=(2, 64), w=(64, 3), dtype="float32"), forms).outputs[
        0
    ]
    assert Degrees(forms, None).difference(left, other).degree == 3


def test_a_root_that_is_a_common_factor_can_vanish_too() -> None:
    forms = Forms()
    left, right = (
        elements_of(trace(program, x=(2, 5), y=(2, 5), dtype="float32"), forms).outputs[0]
        for program in (lambda x, y: op.rms(x, eps=1) * y, lambda x, y: op.rms(x, eps=1) * 2 * y)
    )
    assert Degrees(forms, None).difference(left, right).degree == 2  # y, and the root


def test_counting_one_input_only() -> None:
    forms = Forms()
    (form,) = elements_of(trace(lambda x, y: op.square(x) * y / (x + y), x=(2,), y=(2,)), forms).outputs
    ratio = Degrees(forms, None, frozenset({0})).of(form)
    assert (ratio.size.degree, ratio.poles.degree) == (Fraction(2), Fraction(1))


def test_a_root_weighs_half_and_is_reduced_only_by_norms() -> None:
    numerator, denominator = sizes(lambda x: op.sqrt(op.sum(op.square(x)) + 3) * x, x=(2, 5))
    assert numerator.degree == 2
    squared, _ = sizes(lambda x, y: (op.sqrt(op.sum(op.square(x)) + 3) + y) * (op.sqrt(op.sum(op.square(x)) + 3) - y),
                       x=(2, 5), y=(2, 1))  # fmt: skip
    # (r + y)(r - y) = x_1^2 + ... + x_5^2 + 3 - y^2: the largest coefficient is 3, which heights alone would miss
    assert squared.height >= log2(3)
    assert denominator.degree == 0


def test_sums_of_unlike_grades_do_not_add_up() -> None:
    x = Size(Fraction(1), height=3.0, norm=3.0, names=frozenset({0}), grades=frozenset({(0, 1)}))
    y = Size(Fraction(1), height=2.0, norm=2.0, names=frozenset({1}), grades=frozenset({(1, 1)}))
    assert added([x, y]).height == 3.0
    assert added([x, x]).height == 4.0
    assert added([x, y]).grades is None
    assert one_of([x, y]).height == 3.0
    unknown = Size(Fraction(1), height=3.0, norm=3.0, names=frozenset({0}), grades=None)
    assert added([x, unknown]).height == 4.0


def test_products_over_distinct_rows_keep_small_coefficients() -> None:
    """sum over k of v_k / (1 + r_k): the common denominator is a product of 50 factors, with coefficients 1."""
    numerator, denominator = sizes(lambda v, r: op.sum(v / (1 + r)), v=(2, 50), r=(2, 50))
    assert (numerator.degree, denominator.degree) == (Fraction(50), Fraction(50))
    assert numerator.height == 0.0
    same, _ = sizes(lambda v, r: op.sum(v / (1 + op.sum(r))), v=(2, 50), r=(2, 50))
    assert same.degree == 1
