"""Which exponents are shown to be independent, with which probabilities; brute force over small fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from workbench.core.shapes import Shape
from workbench.domains.field_pairs import field_pair
from workbench.domains.residues import Modulus
from workbench.ugraph import value as op
from workbench.ugraph.tracing import trace
from workbench.ugraph.value import Value
from workbench.verify.degrees import Degrees
from workbench.verify.elements import elements_of
from workbench.verify.exponents import Basis, basis_of, exponents_in
from workbench.verify.forms import Forms
from workbench.verify.roots import Roots

Program = Callable[..., Value]
Q = Modulus(field_pair("w31").q)


def basis(program: Program, shapes: dict[str, Shape], modulus: Modulus = Q, *, coarse: bool = False) -> Basis:
    """Return the basis of the exponents in a program's first output."""
    forms = Forms()
    elements = elements_of(trace(program, dtype="float32", **shapes), forms)
    roots = Roots(forms, [radicand for radicand, _ in elements.radicands], modulus, "q", 0)
    return basis_of(forms, exponents_in(forms, elements.outputs), modulus, 0, roots, coarse=coarse)


ATTENTION: dict[str, Shape] = {"q": (4, 3), "k": (3, 50), "v": (50, 2)}

# name -> program, shapes, delta * q, certain failures, failures per atom used
SHOWN: dict[str, tuple[Program, dict[str, Shape], float, float, float]] = {
    "softmax of an input": (lambda x: op.softmax(x), {"x": (3, 50)}, 1, 0, 0),
    "attention": (lambda q, k, v: op.softmax(q @ k) @ v, ATTENTION, 1, Q.m**-3.0, 0),
    "attention, scaled": (lambda q, k, v: op.softmax((q @ k) * 0.125) @ v, ATTENTION, 1, Q.m**-3.0, 0),
    "attention, shifted": (lambda q, k, v: op.softmax(q @ k - op.max(q @ k)) @ v, ATTENTION, 1, Q.m**-3.0, 0),
    "gated MLP": (lambda x, w: op.sum(op.silu(x @ w)), {"x": (4, 3), "w": (3, 9)}, 1, Q.m**-3.0, 0),
    "column softmax": (lambda x, w: op.softmax(x @ w, axis=-2), {"x": (9, 3), "w": (3, 4)}, 1, Q.m**-3.0, 0),
    "sums": (lambda x, y: op.exp(x) * op.exp(2 * y) + op.exp(x - y), {"x": (3,), "y": (3,)}, 1, 0, 0),
    "with a bias": (lambda x, w, b: op.softmax(x @ w + b), {"x": (4, 3), "w": (3, 9), "b": (9,)}, 1, Q.m**-3.0, 0),
    "a scale per column": (lambda x, s: op.softmax(x * s), {"x": (4, 9), "s": (9,)}, 1, 0, 1 / Q.m),
    "a square": (lambda x: op.exp(op.square(x)), {"x": (3,)}, 2, 4 / Q.m, 0),
    "a root": (lambda x: op.exp(op.sqrt(x)), {"x": (3,)}, 2, 4 / Q.m, 0),  # degree 1/2, norm and condition
    "attention, with a root of keys elsewhere": (
        lambda q, k, v: op.softmax(q @ k) @ v + 0 * op.sum(op.sum(op.sqrt(k)), axis=-2),
        ATTENTION,
        4,
        4 * Q.m**-3.0,
        0,
    ),
    "a quotient": (lambda x, y: op.exp(x / y), {"x": (3,), "y": (3,)}, 1, 0, 0),
    "constants": (lambda x: op.exp(x + 1) + op.exp(2 * x - 1), {"x": (3,)}, Q.m / (Q.m - 1), 0, 0),
}


@pytest.mark.parametrize("name", SHOWN)
def test_independence_is_shown_with_these_probabilities(name: str) -> None:
    program, shapes, delta, once, each = SHOWN[name]
    found = basis(program, shapes)
    assert not found.reason
    assert found.delta * Q.m == pytest.approx(delta)
    assert found.fail_once == pytest.approx(once, rel=1e-6)
    assert found.fail_each == pytest.approx(each, rel=1e-6)


def test_normalised_keys_are_no_longer_uniform() -> None:
    found = basis(lambda q, k, v: op.softmax(op.rms_norm(q) @ (k / op.rms(k, axis=-2))) @ v, ATTENTION)
    assert not found.reason
    assert found.delta * Q.m == pytest.approx(8, rel=1e-5)  # degree 2, doubled by the norm and by the condition
    assert found.count == 50


def test_a_cubic_exponent_is_one_atom() -> None:
    program: Program = lambda x, w: op.gelu(x @ w, approximate="tanh")  # noqa: E731
    shapes: dict[str, Shape] = {"x": (4, 3), "w": (3, 5)}
    assert "not shown to be independent" in basis(program, shapes).reason
    found = basis(program, shapes, coarse=True)
    assert not found.reason
    assert found.delta * Q.m == pytest.approx(6)  # of degree 3 in x and 3 in w
    assert found.count == 1


REFUSED: dict[str, tuple[Program, dict[str, Shape]]] = {
    "product beside its factors": (lambda x, y: op.exp(x * y) + op.exp(x) + op.exp(y), {"x": (3,), "y": (3,)}),
    "all queries and all keys": (
        lambda q, k: op.sum(op.sum(op.exp(q @ k)), axis=-2),
        {"q": (4, 3), "k": (3, 5)},
    ),
    "keys that are queries": (lambda x: op.softmax(x @ op.transpose(x)), {"x": (4, 3)}),
    "zero, but not written so": (
        lambda x, y: op.exp(op.square(x + y) - op.square(x) - 2 * (x * y) - op.square(y)),
        {"x": (3,), "y": (3,)},
    ),
    "an opaque exponent": (lambda x: op.exp(op.log(x)), {"x": (3,)}),
    "an exponent of pieces": (lambda x, w: op.exp(op.relu(x) @ w), {"x": (2, 3), "w": (3, 2)}),
    "two projections of one row": (
        lambda x, w: op.exp(x @ w) + op.exp(x @ op.transpose(w)),
        {"x": (2, 3), "w": (3, 3)},
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_dependent_exponents_are_refused(name: str) -> None:
    program, shapes = REFUSED[name]
    assert basis(program, shapes).reason
    assert basis(program, shapes, coarse=True).reason


def test_a_factor_that_vanishes_modulo_q_is_refused() -> None:
    assert "modulo q = 23" in basis(lambda x: op.exp(23 * x), {"x": (2,)}, Modulus(23)).reason


def weights(program: Program, **shapes: Shape) -> tuple[int, int]:
    forms = Forms()
    elements = elements_of(trace(program, dtype="float32", **shapes), forms)
    found = basis_of(forms, exponents_in(forms, elements.outputs), Q, 0, Roots(forms, [], Q, "q", 0))
    size = Degrees(forms, found).of(elements.outputs[0]).size
    return size.plus, size.minus


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (lambda x, y: op.exp(x), (1, 0)),
        (lambda x, y: op.exp(2 * x), (1, 0)),  # the atom is 2 x
        (lambda x, y: op.exp(2 * x) + op.exp(3 * x), (3, 0)),
        (lambda x, y: op.exp(x / 2) + op.exp(x / 3), (3, 0)),  # the atom is x / 6
        (lambda x, y: op.exp(x - y) + op.exp(-x), (1, 1)),
        (lambda x, y: op.exp(x) * (1 + op.exp(y)) * (1 + op.exp(-y)), (2, 1)),
        (lambda x, y: op.exp(op.relu(x) - y) + op.exp(2 * x), (2, 1)),
    ],
)
def test_weights_count_atoms_with_their_signs(program: Program, expected: tuple[int, int]) -> None:
    assert weights(program, x=(3,), y=(3,)) == expected


def test_different_indices_give_different_exponents_only_where_an_atom_moves() -> None:
    forms = Forms()
    elements = elements_of(trace(lambda q, k, v: op.softmax(q @ k) @ v, q=(4, 3), k=(3, 50), v=(50, 2)), forms)
    arguments = exponents_in(forms, elements.outputs)
    found = basis_of(forms, arguments, Q, 0, Roots(forms, [], Q, "q", 0))
    (argument,) = arguments
    bound = next(v for v in argument.variables if v.kind == "bound")
    free = next(v for v in argument.variables if v.kind == "free")
    assert found.separates(argument, bound)
    assert found.separates(argument, free)
    other = next(v for v in elements.outputs[0].variables if v not in argument.variables)
    assert not found.separates(argument, other)


def test_the_joint_law_of_attention_logits_by_brute_force() -> None:
    """For q a row of 2 and k of 2 by 2 over Z_5: given q not 0 the two logits take each pair of values equally often."""
    m = 5
    seen: Counter[tuple[int, ...]] = Counter()
    for q in product(range(m), repeat=2):
        for k in product(range(m), repeat=4):
            logits = np.asarray(q) @ np.asarray(k).reshape(2, 2) % m
            if any(q):
                seen[tuple(int(a) for a in logits)] += 1
    assert len(set(seen.values())) == 1
    found = basis(lambda q, k: op.softmax(q @ k), {"q": (1, 2), "k": (2, 2)}, Modulus(m))
    assert found.delta == 1 / m
    assert found.fail_once == pytest.approx(m**-2.0)


@pytest.mark.parametrize("m", [11, 23])
def test_no_value_of_a_normalised_logit_is_more_likely_than_delta(m: int) -> None:
    program: Program = lambda q, k: op.softmax(q @ (k / op.sqrt(op.sum(op.square(k), axis=-2) + 1)))  # noqa: E731
    found = basis(program, {"q": (1, 2), "k": (2, 2)}, Modulus(m))
    assert not found.reason
    root = {x: pow(x, (m + 1) // 4, m) for x in range(m)}
    squares = {x * x % m for x in range(m)}
    worst = 0.0
    for q in product(range(m), repeat=2):
        seen: Counter[int] = Counter()
        for k in product(range(m), repeat=2):
            radicand = (k[0] ** 2 + k[1] ** 2 + 1) % m
            if radicand and radicand in squares:
                seen[(q[0] * k[0] + q[1] * k[1]) * pow(root[radicand], -1, m) % m] += 1
        if any(q):
            worst = max(worst, max(seen.values()) / sum(seen.values()))
    assert worst <= found.delta
