"""Forms: which are one object, and which must not be."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from workbench.ugraph import value as op
from workbench.ugraph.tracing import trace
from workbench.ugraph.value import Value
from workbench.verify.elements import elements_of, have_equal_forms
from workbench.verify.form_atoms import Element
from workbench.verify.forms import Forms
from workbench.verify.indices import Var, combine, constant, variable

Program = Callable[..., Value]
S = {"x": (4, 6), "y": (4, 6), "w": (6, 5), "v": (6, 5), "u": (5, 6), "m": (4, 1), "s": (6, 6)}


def same(left: Program, right: Program, names: str) -> bool:
    shapes = {name: S[name] for name in names.split()}
    return have_equal_forms(trace(left, dtype="float32", **shapes), trace(right, dtype="float32", **shapes))


EQUAL: dict[str, tuple[Program, Program, str]] = {
    "sum of exponents": (lambda x, y: op.exp(x) * op.exp(y), lambda x, y: op.exp(x + y), "x y"),
    "softmax shifted by a row": (lambda x, m: op.softmax(x + m), lambda x, m: op.softmax(x) + 0 * m, "x m"),
    "softmax shifted by its maximum": (lambda x: op.softmax(x - op.max(x)), lambda x: op.softmax(x), "x"),
    "root squared": (lambda x: op.sqrt(x) * op.sqrt(x), lambda x: 1 * x, "x"),
    "division of rows": (lambda x, w, m: (x / m) @ w, lambda x, w, m: (x @ w) / m, "x w m"),
    "constants out of sums": (lambda x: op.sum(3 * x), lambda x: 3 * op.sum(x), "x"),
    "order of sums": (
        lambda x: op.sum(op.sum(x, axis=-2), axis=-1),
        lambda x: op.sum(op.sum(x, axis=-1), axis=-2),
        "x",
    ),
    "concatenated contraction": (
        lambda x, y, w, v: op.concat(x, y) @ op.concat(w, v, axis=-2),
        lambda x, y, w, v: x @ w + y @ v,
        "x y w v",
    ),
    "products of matrices in another order": (lambda x, w, u: (x @ w) @ u, lambda x, w, u: x @ (w @ u), "x w u"),
    "a chain of square matrices": (
        lambda s, x: ((x @ s) @ op.transpose(s)) @ s,
        lambda s, x: x @ (s @ (op.transpose(s) @ s)),
        "s x",
    ),
    "logits in another order": (
        lambda x, s, w: op.softmax((x @ s) @ w),
        lambda x, s, w: op.softmax(x @ (s @ w)),
        "x s w",
    ),
    "projection of attention": (
        lambda x, w, u: op.softmax(x @ w) @ (u @ w),
        lambda x, w, u: (op.softmax(x @ w) @ u) @ w,
        "x w u",
    ),
    "strided sum": (lambda x: op.sum(op.sum_to_columns(x, 3)), lambda x: op.sum(x), "x"),
    "split and joined": (
        lambda x: op.concat(*op.split(x, 3)),
        lambda x: 1 * x,
        "x",
    ),
    "reshaped and back": (lambda x: op.reshape(op.reshape(x, (3, 8)), (4, 6)), lambda x: 1 * x, "x"),
    "transposed twice": (lambda s: op.transpose(op.transpose(s) @ s), lambda s: op.transpose(s) @ s, "s"),
    "sum of a reshaped row": (
        lambda x: op.reshape(op.sum(op.sum(op.reshape(x, (4, 2, 3))), axis=-2), (4, 1)),
        lambda x: op.sum(x),
        "x",
    ),
    "exp of exp of equals": (lambda x: op.exp(op.exp(x + x)), lambda x: op.exp(op.exp(2 * x)), "x"),
}

NOT_EQUAL: dict[str, tuple[Program, Program, str]] = {
    "factors of a chain exchanged": (lambda s, x: x @ s @ op.transpose(s), lambda s, x: x @ op.transpose(s) @ s, "s x"),
    "transposed": (lambda s: op.transpose(s), lambda s: 1 * s, "s"),
    "operands of a product exchanged": (lambda s, u, w: w @ u @ s, lambda s, u, w: s @ (w @ u), "s u w"),
    "sum of squares and square of the sum": (
        lambda x: op.sum(op.square(x)),
        lambda x: op.square(op.sum(x)),
        "x",
    ),
    "another column": (
        lambda x: op.split(x, 3)[0],
        lambda x: op.split(x, 3)[1],
        "x",
    ),
    "concatenated the other way round": (lambda x, y: op.concat(x, y), lambda x, y: op.concat(y, x), "x y"),
    "column sums for row sums": (lambda s: op.sum(s), lambda s: op.transpose(op.sum(s, axis=-2)), "s"),
    "regrouped": (lambda x: op.reshape(op.transpose(x), (4, 6)), lambda x: 1 * x, "x"),
    "root of a square": (lambda x: op.sqrt(op.square(x)), lambda x: 1 * x, "x"),
    "maximum and minimum": (lambda x: op.max(x), lambda x: -op.max(-x), "x"),
    "two maxima": (lambda x: op.max(x), lambda x: op.max(x, axis=-2) + 0 * op.max(x), "x"),
    "exp of a product": (lambda x, y: op.exp(x * y), lambda x, y: op.exp(x) * op.exp(y), "x y"),
    "softmax over the other axis": (lambda s: op.softmax(s), lambda s: op.softmax(s, axis=-2), "s"),
    "relu and its operand": (lambda x: op.relu(x), lambda x: 1 * x, "x"),
    "two random functions": (lambda x: op.log(x), lambda x: op.exp(op.exp(x)), "x"),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_programs_have_one_form(name: str) -> None:
    assert same(*EQUAL[name])


@pytest.mark.parametrize("name", NOT_EQUAL)
def test_different_programs_have_different_forms(name: str) -> None:
    assert not same(*NOT_EQUAL[name])


def test_equal_forms_are_one_object_whatever_the_order() -> None:
    f = Forms()
    x, y, z = (f.element(number, ()) for number in range(3))
    assert f.add(x, f.add(y, z)) is f.add(f.add(z, x), y)
    assert f.mul(x, f.mul(y, z)) is f.mul(f.mul(z, x), y)
    assert f.mul(f.add(x, y), f.power(f.add(y, x), -1)) is f.one
    assert f.mul(f.add(x, x), y) is f.mul(x, f.add(y, y))
    assert f.sub(x, x) is f.zero


def test_bound_variables_have_no_names_of_their_own() -> None:
    f = Forms()
    i, a, b = Var("free", 0, 3), Var("open", 1, 5), Var("open", 2, 5)
    left = f.sum_over(a, f.element(0, (variable(i), variable(a))))
    right = f.sum_over(b, f.element(0, (variable(i), variable(b))))
    assert left is right
    assert left is not f.sum_over(a, f.element(0, (variable(a), variable(i))))


def test_substitution_captures_nothing() -> None:
    f = Forms()
    i, k = Var("free", 0, 5), Var("open", 1, 5)
    inner = f.sum_over(k, f.mul(f.element(0, (variable(i), variable(k))), f.element(1, (variable(k),))))
    outer = f.sum_over(Var("open", 2, 5), f.mul(f.substitute(inner, {i: variable(Var("open", 2, 5))}), f.element(
        2, (variable(Var("open", 2, 5)),))))  # fmt: skip
    # sum over j of (sum over k of A[j, k] b[k]) c[j]: renaming the bound variables must keep A's indices apart
    (atom,) = (a for a in f.inside(outer) if isinstance(a, Element) and a.tensor == 0)
    assert atom.index[0] != atom.index[1]


def test_loop_and_tile_run_together_raggedly_too() -> None:
    f = Forms()
    loop, tile = Var("open", 1, 4), Var("open", 2, 3)
    place = combine([(3, variable(loop)), (1, variable(tile))])
    ragged = f.sum_over(loop, f.sum_over(tile, f.element(0, (place,)), ((place, 10),)))
    whole = Var("open", 1, 10)
    assert ragged is f.sum_over(whole, f.element(0, (variable(whole),)))
    even = f.sum_over(loop, f.sum_over(tile, f.element(0, (place,))))
    assert even is not ragged


def test_a_sum_that_stops_at_a_limit_is_no_whole_sum() -> None:
    f = Forms()
    k = Var("open", 1, 6)
    limited = f.sum_over(k, f.element(0, (variable(k),)), ((combine([(1, variable(k))], 2), 6),))
    assert limited is not f.sum_over(k, f.element(0, (variable(k),)))
    one = f.sum_over(k, f.one, ((combine([(1, variable(k))], 2), 6),))
    assert one.constant is None  # it is 4, but that is not counted here, and 6 would be wrong


def test_a_constant_index_picks_the_part_of_a_concatenation() -> None:
    f = Forms()
    parts = (f.element(0, ()), f.element(1, ()))
    assert f.choice("concat", parts, constant(2), (0, 2)) is parts[1]
    assert f.choice("concat", parts, constant(1), (0, 2)) is parts[0]


def test_every_form_of_a_program_is_found_by_walking_it_once() -> None:
    graph = trace(lambda x, w: op.softmax(x @ w), x=(2, 3), w=(3, 4))
    f = Forms()
    elements = elements_of(graph, f)
    assert len(elements.divisors) == 1
    assert elements.divisors[0][1] == 2  # one denominator a row
    assert elements.has_q == (False,)
