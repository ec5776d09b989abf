"""The laws of the pair of fields: those of the course's section 5.3, exercise 3, the lemmas on roots, and faults."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from workbench.domains.finite_field import (
    PRESETS,
    FieldArithmetic,
    FieldPair,
    FieldValue,
    field_pair,
    random_elements,
)
from workbench.errors import DTypeError, FieldError, OutsideLaxError, ShapeError

WORKING = ("w20", "w31", "w61")


def arithmetic(name: str, rng: np.random.Generator) -> FieldArithmetic:
    pair = field_pair(name)
    return FieldArithmetic(pair, pair.random_omega(rng))


def agree(f: FieldArithmetic, a: FieldValue, b: FieldValue) -> float:
    """The share of elements on which two values agree, on all sides that both have."""
    return 1.0 - float(f.differs(a, b).mean())


# ------------------------------------------------------------------------------------------------ laws of section 5.3
Law = Callable[[FieldArithmetic, FieldValue, FieldValue], tuple[FieldValue, FieldValue]]

TRUE_LAWS: dict[str, Law] = {
    "e^a e^b = e^(a+b)": lambda f, a, b: (f.mul(f.exp(a), f.exp(b)), f.exp(f.add(a, b))),
    "e^(-a) = 1 / e^a": lambda f, a, b: (f.exp(f.neg(a)), f.inverse(f.exp(a))),
    "e^a / e^b = e^(a-b)": lambda f, a, b: (f.div(f.exp(a), f.exp(b)), f.exp(f.sub(a, b))),
    "(e^a)^3 = e^(3a)": lambda f, a, b: (f.power(f.exp(a), 3), f.exp(f.mul(f.const(3), a))),
    "(a/b) b = a": lambda f, a, b: (f.mul(f.div(a, b), b), a),
    "a + (b - a) = b": lambda f, a, b: (f.add(a, f.sub(b, a)), b),
    "(a+b)^2 = a^2 + 2ab + b^2": lambda f, a, b: (
        f.power(f.add(a, b), 2),
        f.add(f.add(f.power(a, 2), f.mul(f.const(2), f.mul(a, b))), f.power(b, 2)),
    ),
    "a/b = a * (1/b)": lambda f, a, b: (f.div(a, b), f.mul(a, f.power(b, -1))),
    "a/3 + a/6 = a/2": lambda f, a, b: (
        f.add(f.mul(a, f.const(Fraction(1, 3))), f.mul(a, f.const(Fraction(1, 6)))),
        f.mul(a, f.const(Fraction(1, 2))),
    ),
}
FALSE_LAWS: dict[str, Law] = {
    "e^(a+b) = e^a + e^b": lambda f, a, b: (f.exp(f.add(a, b)), f.add(f.exp(a), f.exp(b))),
    "e^(ab) = e^a e^b": lambda f, a, b: (f.exp(f.mul(a, b)), f.mul(f.exp(a), f.exp(b))),
    "(a+b)^2 = a^2 + b^2": lambda f, a, b: (f.power(f.add(a, b), 2), f.add(f.power(a, 2), f.power(b, 2))),
    "a/b = b/a": lambda f, a, b: (f.div(a, b), f.div(b, a)),
    "a - b = b - a": lambda f, a, b: (f.sub(a, b), f.sub(b, a)),
    "1/(a+b) = 1/a + 1/b": lambda f, a, b: (f.inverse(f.add(a, b)), f.add(f.inverse(a), f.inverse(b))),
}


def nonzero_tuples(pair: FieldPair, rng: np.random.Generator) -> tuple[FieldValue, FieldValue]:
    """1000 tuples (a, b) with b nowhere 0, on either side."""
    a, b = random_elements(rng, (1100,), pair), random_elements(rng, (1100,), pair)
    assert b.q is not None
    usable = np.flatnonzero((b.p != 0) & (b.q != 0))[:1000]
    return a.map(lambda x: x[usable]), b.map(lambda x: x[usable])


@pytest.mark.parametrize("name", ["course", *WORKING])
@pytest.mark.parametrize("law", list(TRUE_LAWS))
def test_true_laws_hold_on_all_of_1000_tuples(name: str, law: str, rng: np.random.Generator) -> None:
    f = arithmetic(name, rng)
    a, b = nonzero_tuples(f.pair, rng)
    left, right = TRUE_LAWS[law](f, a, b)
    assert left.shape == (1000,)
    assert (left.q is None) == (right.q is None)
    assert agree(f, left, right) == 1.0
    assert not f.faults


@pytest.mark.parametrize("name", ["course", *WORKING])
@pytest.mark.parametrize("law", list(FALSE_LAWS))
def test_false_laws_fail_on_almost_all_of_1000_tuples(name: str, law: str, rng: np.random.Generator) -> None:
    f = arithmetic(name, rng)
    a, b = nonzero_tuples(f.pair, rng)
    left, right = FALSE_LAWS[law](f, a, b)
    assert agree(f, left, right) < 0.01


def test_a_false_law_is_accepted_about_once_in_p_in_a_small_field(rng: np.random.Generator) -> None:
    """(a+b)^2 = a^2 + b^2 iff 2ab = 0: a or b zero, 2/p - 1/p^2 of the pairs; and so it must be on the p side."""
    pair = field_pair("paper")
    f = FieldArithmetic(pair, pair.random_omega(rng))
    trials = 200_000
    a, b = (random_elements(rng, (trials,), pair, with_q=False) for _ in range(2))
    rate = agree(f, *FALSE_LAWS["(a+b)^2 = a^2 + b^2"](f, a, b))
    expected = 2 / pair.p - 1 / pair.p**2
    assert abs(rate - expected) < 4 * (expected / trials) ** 0.5


# ------------------------------------------------------------------------------------------------------- exercise 3
def test_exercise_3() -> None:
    """exp(2) exp(3) = 5 * 9 = 45 = 1 mod 11 and exp(5) = exp(0) = 1; exp(2) + exp(3) = 14 = 3 mod 11."""
    f = FieldArithmetic(field_pair("exercise"), 4)
    assert f.encode(2).shape == ()
    two, three, five = (f.exp(f.encode(x)) for x in (2, 3, 5))
    assert (int(two.p), int(three.p), int(five.p)) == (5, 9, 1)
    assert int(f.mul(two, three).p) == 1
    assert int(f.add(two, three).p) == 3
    assert f.exp(f.encode([0, 1, 2, 3, 4])).p.tolist() == [1, 4, 5, 9, 3]


@pytest.mark.parametrize("name", list(PRESETS))
def test_exp_by_its_definition(name: str, rng: np.random.Generator) -> None:
    f = arithmetic(name, rng)
    x = random_elements(rng, (5, 7), f.pair)
    assert x.q is not None
    assert f.exp(x).p.tolist() == [[pow(f.omega, v, f.pair.p) for v in row] for row in x.q.tolist()]


# ------------------------------------------------------------------------------------------------- the missing q part
def test_exp_leaves_no_q_part_and_a_second_exp_is_refused(rng: np.random.Generator) -> None:
    f = arithmetic("w31", rng)
    x = random_elements(rng, (3, 3), f.pair)
    e = f.exp(x)
    assert e.q is None
    for value in (
        f.add(x, e), f.mul(e, x), f.sub(e, x), f.div(x, e), f.div(e, x), f.neg(e), f.inverse(e), f.matmul(x, e),
        f.sum(e), f.power(e, 2), f.where(np.eye(3, dtype=bool), x, e), FieldValue.join([x, e], np.concatenate),
        f.sqrt(e),
    ):  # fmt: skip
        assert value.q is None
        with pytest.raises(OutsideLaxError, match="an exp came before it"):
            f.exp(value)


def test_an_operand_without_q_never_faults_on_q(rng: np.random.Generator) -> None:
    f = arithmetic("w31", rng)
    one = f.encode([1]).without_q()
    f.div(one, FieldValue(np.array([5]), np.array([0])))
    assert not f.faults


@pytest.mark.parametrize(("name", "kept"), [("course", True), ("mirage", True), ("paper", False), ("exercise", False)])
def test_roots_keep_the_q_part_only_where_q_has_them(name: str, kept: bool, rng: np.random.Generator) -> None:
    f = arithmetic(name, rng)
    root = f.sqrt(f.encode([4, 9]))
    assert (root.q is not None) == kept
    if not kept:
        with pytest.raises(OutsideLaxError, match="q = 1 mod 4"):
            f.exp(root)


# ------------------------------------------------------------------------------------------------------------- roots
@pytest.mark.parametrize("name", ["course", "mirage", *WORKING])
def test_lemma_the_root_is_multiplicative_everywhere(name: str, rng: np.random.Generator) -> None:
    f = arithmetic(name, rng)
    a, b = random_elements(rng, (1000,), f.pair), random_elements(rng, (1000,), f.pair)
    a.p[:2], b.p[1:3] = 0, 0
    left, right = f.mul(f.sqrt(a), f.sqrt(b)), f.sqrt(f.mul(a, b))
    assert left.q is not None
    assert agree(f, left, right) == 1.0
    faults = f.take_faults()
    assert {fault.side for fault in faults} == {"p", "q"}  # non-residues were among them
    assert 300 < faults[0].mask.sum() < 700


@pytest.mark.parametrize("name", WORKING)
def test_lemma_the_root_of_a_square_is_a_square_and_its_square_is_it(name: str, rng: np.random.Generator) -> None:
    f = arithmetic(name, rng)
    x = random_elements(rng, (1000,), f.pair)
    square = f.mul(x, x)
    root = f.sqrt(square)
    f.sqrt(root)
    assert not f.faults
    assert agree(f, f.mul(root, root), square) == 1.0
    assert 0.4 < agree(f, root.without_q(), x) < 0.6  # sqrt(x^2) = x is no identity


@pytest.mark.parametrize("name", WORKING)
def test_small_constants_move_out_of_roots(name: str, rng: np.random.Generator) -> None:
    f = arithmetic(name, rng)
    x = random_elements(rng, (200,), f.pair)
    for c in (2, 3, 5, 7) if name == "w20" else (2, 3, 5, 7, 11, 13):
        f.take_faults()
        f.sqrt(f.const(c))
        assert not f.faults
        assert agree(f, f.sqrt(f.mul(f.const(c * c), x)), f.mul(f.const(c), f.sqrt(x))) == 1.0


def test_a_constant_does_not_move_out_of_a_root_where_it_is_no_square(rng: np.random.Generator) -> None:
    f = arithmetic("mirage", rng)
    assert 5 in f.pair.non_squares("p")
    x = random_elements(rng, (200,), f.pair, with_q=False)
    left, right = f.sqrt(f.mul(f.const(25), x)), f.mul(f.const(5), f.sqrt(x))
    assert agree(f, left, f.neg(right)) == 1.0


def test_zero_is_its_own_root_without_a_fault(rng: np.random.Generator) -> None:
    f = arithmetic("w61", rng)
    assert agree(f, f.sqrt(f.const(0)), f.const(0)) == 1.0
    assert not f.faults


def test_no_root_where_p_is_1_mod_4() -> None:
    f = FieldArithmetic(FieldPair(13, 3), 3)
    with pytest.raises(FieldError, match="1 mod 4"):
        f.sqrt(f.const(4))


# ------------------------------------------------------------------------------------------------------------ faults
def test_zero_denominators_are_reported_by_side_and_element(rng: np.random.Generator) -> None:
    f = arithmetic("w20", rng)
    a, b = random_elements(rng, (4, 3), f.pair), f.encode([[1], [2], [3], [4]])
    assert b.q is not None
    b.p[2], b.q[0] = 0, 0
    quotient = f.div(a, b)
    assert [(x.kind, x.side, x.mask[:, 0].tolist()) for x in f.faults] == [
        ("zero denominator", "p", [False, False, True, False]),
        ("zero denominator", "q", [True, False, False, False]),
    ]
    assert not quotient.p[2].any()
    assert agree(f, f.mul(quotient, b), a) == pytest.approx(0.5)
    assert len(f.take_faults()) == 2
    assert not f.faults


def test_non_squares_are_reported_at_their_elements(rng: np.random.Generator) -> None:
    f = arithmetic("w31", rng)
    f.sqrt(f.encode([4, -4, 9, -1, 0]))
    assert [(x.kind, x.side, x.mask.tolist()) for x in f.faults] == [
        ("not a square", side, [False, True, False, True, False]) for side in ("p", "q")
    ]


@pytest.mark.parametrize(
    "exponent", [0, 1, 2, 5, -1, -3, Fraction(1, 2), Fraction(-1, 2), Fraction(3, 2), Fraction(4, 2)]
)
def test_powers(exponent: Fraction | int, rng: np.random.Generator) -> None:
    f = arithmetic("w61", rng)
    base = random_elements(rng, (50,), f.pair)
    square = f.mul(base, base)
    got = f.power(square, exponent)
    root = f.sqrt(square)
    expected = f.const(1)
    for _ in range(abs(int(2 * Fraction(exponent)))):
        expected = f.mul(expected, root)
    assert agree(f, got, expected if exponent >= 0 else f.inverse(expected)) == 1.0
    assert not f.faults


def test_powers_report_faults_and_refuse_other_exponents(rng: np.random.Generator) -> None:
    f = arithmetic("w31", rng)
    f.power(f.encode([0, 1]), Fraction(-1, 2))
    assert [x.kind for x in f.take_faults()] == ["zero denominator"] * 2
    f.power(f.encode([-1, 1]), Fraction(1, 2))
    assert [x.kind for x in f.take_faults()] == ["not a square"] * 2
    with pytest.raises(OutsideLaxError, match="1/3"):
        f.power(f.encode([8]), Fraction(1, 3))


# ------------------------------------------------------------------------------------------------- constants, values
@pytest.mark.parametrize("name", list(PRESETS))
@pytest.mark.parametrize("value", [0, 1, -1, 7, 10**30, Fraction(1, 2), Fraction(-22, 7), Fraction(1, 10**6 + 3)])
def test_constants(name: str, value: Fraction | int, rng: np.random.Generator) -> None:
    f = arithmetic(name, rng)
    fraction = Fraction(value)
    c = f.const(value)
    assert c.shape == ()
    assert c.q is not None
    for residue, m in ((int(c.p), f.pair.p), (int(c.q), f.pair.q)):
        assert 0 <= residue < m
        assert (residue * fraction.denominator - fraction.numerator) % m == 0


@pytest.mark.parametrize(("name", "value"), [("exercise", Fraction(1, 10)), ("exercise", Fraction(3, 22))])
def test_constants_that_do_not_exist(name: str, value: Fraction, rng: np.random.Generator) -> None:
    with pytest.raises(FieldError, match="divides its denominator"):
        arithmetic(name, rng).const(value)


def test_encode(rng: np.random.Generator) -> None:
    f = arithmetic("w61", rng)
    value = f.encode([[-1, 2**64], [2**100, 5]])
    assert value.p.tolist() == [[f.pair.p - 1, 2**64 % f.pair.p], [2**100 % f.pair.p, 5]]
    assert f.encode(np.array([2**64 - 1], np.uint64)).p.tolist() == [(2**64 - 1) % f.pair.p]
    for wrong in ([0.5], [Fraction(1, 2)], ["1"]):
        with pytest.raises(DTypeError, match="integer"):
            f.encode(wrong)  # type: ignore[arg-type]


def test_values_refuse_other_element_types_and_shapes() -> None:
    with pytest.raises(DTypeError, match="uint64"):
        FieldValue(np.zeros(3, np.uint64))
    with pytest.raises(ShapeError, match="differ in shape"):
        FieldValue(np.zeros(3, np.int64), np.zeros(2, np.int64))


def test_a_wrong_root_of_unity_is_refused() -> None:
    with pytest.raises(FieldError, match="not a root of unity"):
        FieldArithmetic(field_pair("w31"), 2147024878)


def test_random_elements_are_independent_on_both_sides(rng: np.random.Generator) -> None:
    """Every pair of residues modulo (11, 5) is hit equally often, so the sides tell nothing about each other."""
    value = random_elements(rng, (110, 1000), field_pair("exercise"))
    assert value.q is not None
    counts = np.bincount((value.p * 5 + value.q).reshape(-1), minlength=55)
    assert float(((counts - 2000.0) ** 2 / 2000.0).sum()) < 91.9  # chi-square, 54 degrees of freedom, 0.1 percent
    assert random_elements(rng, (2,), field_pair("exercise"), with_q=False).q is None


# ---------------------------------------------------------------------------------------------------- small programs
@pytest.mark.parametrize("name", WORKING)
def test_attention_merges_blocks_and_subtracts_any_m(name: str, rng: np.random.Generator) -> None:
    """Softmax attention of 32 keys: whole, in 4 blocks, and shifted by any m agree; the wrong merge does not."""
    f = arithmetic(name, rng)
    query, keys, values, shift = (random_elements(rng, s, f.pair) for s in ((3, 8), (8, 32), (32, 8), (3, 1)))

    def parts(block: slice, m: FieldValue) -> tuple[FieldValue, FieldValue]:
        scores = f.exp(f.sub(f.matmul(query, keys.map(lambda x: x[:, block])), m))
        return f.matmul(scores, values.map(lambda x: x[block])), f.sum(scores)

    whole = f.div(*parts(slice(None), f.const(0)))
    blocks = [parts(slice(start, start + 8), shift) for start in range(0, 32, 8)]
    numerator, denominator = blocks[0]
    for top, bottom in blocks[1:]:
        numerator, denominator = f.add(numerator, top), f.add(denominator, bottom)
    assert agree(f, f.div(numerator, denominator), whole) == 1.0
    wrong = f.const(0)
    for top, bottom in blocks:  # the mean of the blocks' results
        wrong = f.add(wrong, f.mul(f.div(top, bottom), f.const(Fraction(1, 4))))
    assert agree(f, wrong, whole) < 0.1


@pytest.mark.parametrize("name", WORKING)
def test_rms_norm_does_not_see_a_factor_of_two(name: str, rng: np.random.Generator) -> None:
    f = arithmetic(name, rng)
    x, w = random_elements(rng, (4, 16), f.pair), random_elements(rng, (16, 5), f.pair)

    def norm(v: FieldValue) -> FieldValue:
        return f.sqrt(f.mul(f.sum(f.mul(v, v)), f.const(Fraction(1, 16))))

    early = f.matmul(f.div(x, norm(x)), w)
    late = f.div(f.matmul(x, w), norm(x))
    doubled = f.mul(x, f.const(2))
    assert agree(f, early, late) == 1.0
    assert agree(f, f.matmul(f.div(doubled, norm(doubled)), w), early) == 1.0


def test_movements(rng: np.random.Generator) -> None:
    f = arithmetic("w31", rng)
    a, b = random_elements(rng, (2, 3), f.pair), random_elements(rng, (2, 3), f.pair)
    joined = FieldValue.join([a, b], lambda parts: np.concatenate(parts, axis=-1))
    assert joined.q is not None
    assert joined.shape == (2, 6)
    assert agree(f, joined.map(lambda x: x[:, 3:]), b) == 1.0
    total = f.sum(a.map(lambda x: x.T), (0, 1), keepdims=False)
    assert agree(f, total, f.sum(f.sum(a), -2).map(lambda x: x[0, 0])) == 1.0


def test_differs_compares_the_sides_that_both_have() -> None:
    f = FieldArithmetic(field_pair("exercise"), 4)
    a = FieldValue(np.array([1, 2, 3]), np.array([1, 2, 3]))
    b = FieldValue(np.array([1, 2, 4]), np.array([1, 0, 3]))
    assert f.differs(a, b).tolist() == [False, True, True]
    assert f.differs(a, b.without_q()).tolist() == [False, False, True]
    assert f.differs(a, f.const(1)).shape == (3,)
    with pytest.raises(ShapeError):
        f.differs(a, f.encode([1, 2]))


def test_opaque_functions_agree_exactly_where_arguments_do(rng: np.random.Generator) -> None:
    f = arithmetic("w31", rng)
    a, b = random_elements(rng, (50,), f.pair), random_elements(rng, (50,), f.pair)
    left, right = f.opaque([f.add(a, b)], 7), f.opaque([f.add(b, a)], 7)
    assert agree(f, left, right) == 1.0
    assert left.q is not None
    assert agree(f, f.exp(left), f.exp(right)) == 1.0
    assert agree(f, left, f.opaque([f.sub(a, b)], 7)) == 0.0
    assert agree(f, left, f.opaque([f.add(a, b)], 8)) == 0.0
    assert agree(f, f.opaque([f.exp(a)], 7), f.opaque([f.power(f.exp(f.neg(a)), -1)], 7)) == 1.0
