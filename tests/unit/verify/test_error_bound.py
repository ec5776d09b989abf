"""The bound of one test: closed cases at true shapes, the heights premise, and how many tests an error needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from workbench import programs
from workbench.core.shapes import Shape
from workbench.domains.field_pairs import FieldPair, field_pair
from workbench.errors import UsageError
from workbench.ugraph import value as op
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.tracing import trace
from workbench.ugraph.value import Value
from workbench.verify.error_bound import Bound, bound_per_test, combined
from workbench.verify.error_bound import tests_needed as needed
from workbench.verify.radicands import rewrite_square_radicands

Program = Callable[..., Value | tuple[Value, ...]]
W20, W31, W61 = field_pair("w20"), field_pair("w31"), field_pair("w61")


def bound(left: Program, right: Program, shapes: dict[str, Shape], pair: FieldPair = W31, **options: Any) -> Bound:
    graphs = [rewrite_square_radicands(trace(fn, dtype="float32", **shapes)) for fn in (left, right)]
    return bound_per_test(graphs[0], graphs[1], pair, **options)


def of_program(name: str, pair: FieldPair, style: str = "standard") -> Bound:
    """Return the bound of a program against its best hand-written graph, at its default sizes."""
    return bound_per_test(programs.get(name, style=style), programs.known_good(name, style=style)[0], pair)


# name -> style, degree in the values (of the norm), degree in the exponentials, one test's bound in units of 1/p and 1/q
PROGRAMS: dict[str, tuple[str, int, int, Callable[[int, int], float]]] = {
    "lora": ("standard", 3, 0, lambda p, q: 3 / p * 3 / q),
    "rms_norm_linear": ("standard", 6, 0, lambda p, q: (4 * 3 / p) * (4 * 3 / q)),
    "gated_mlp": ("standard", 4, 0, lambda p, q: 4 / p),
    "gqa": ("standard", 1, 1, lambda p, q: 1 / p + 1 / q),
    "qk_norm_attention": ("standard", 1, 1, lambda p, q: 1 / p + 8 / q + 4 * 4 / q),
    "ntrans": ("standard", 12, 0, lambda p, q: (16 * 3 / p) * (16 * 3 / q)),
    "softmax": ("standard", 0, 1, lambda p, q: 1 / q),
}


@pytest.mark.parametrize("pair", [W31, W61], ids=["w31", "w61"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_bounds_of_programs_at_true_shapes(name: str, pair: FieldPair) -> None:
    style, degree_u, degree_y, closed = PROGRAMS[name]
    found = of_program(name, pair, style)
    assert (found.degree_u, found.degree_y) == (degree_u, degree_y)
    assert found.degree == degree_u + degree_y
    assert found.per_test == pytest.approx(closed(pair.p, pair.q), rel=1e-3)  # zero denominators are rare
    assert found.pairs_needed == 1
    assert found.assumptions == ()
    assert needed(found, 1e-9) in (1, 2)


@pytest.mark.parametrize("style", ["standard", "mirage"])
@pytest.mark.parametrize("name", programs.names())
def test_every_program_reaches_one_in_a_billion_with_one_test_of_61_bits(name: str, style: str) -> None:
    found = of_program(name, W61, style)
    assert found.per_test is not None
    assert needed(found, 1e-9) == 1
    assert found.name in ("schwartz-zippel", "mixed sets")
    assert found.pairs_needed == 1


def test_roots_of_exponentials_double_both_degrees() -> None:
    found = bound(
        lambda x, w: op.rms_norm(op.silu(x @ w) * 2), lambda x, w: op.rms_norm(op.silu(x @ w)) + 0 * (x @ w),
        {"x": (3, 4), "w": (4, 5)}, W61)  # fmt: skip
    assert found.name == "mixed sets"
    assert found.conditioned_roots == 2  # eps makes two radicands of one row
    assert found.per_test is not None
    assert found.per_test < 1e-14
    one = bound(lambda x, y: op.sqrt(y + op.exp(x)), lambda x, y: 2 * op.sqrt(y + op.exp(x)), {"x": (3,), "y": (3,)})
    assert one.per_test == pytest.approx(4 * (0.5 / W31.p + 1 / W31.q), rel=1e-6)  # a root of degree 1/2 in y, weight 1
    assert one.assumptions == ()


def test_the_root_of_an_exponential_alone_is_refused() -> None:
    """omega^a is always a square, so such roots condition nothing and are not shown to be independent."""
    found = bound(lambda x: op.sqrt(op.exp(x)), lambda x: op.exp(x / 2), {"x": (3,)})
    assert found.per_test is None
    assert "independent" in found.reason


def test_exponents_add_up() -> None:
    found = bound(lambda x: op.exp(3 * x), lambda x: op.exp(x), {"x": (3,)})
    assert found.degree_y == 3
    assert found.per_test == pytest.approx(3 / W31.q, rel=1e-6)


def test_exponents_of_both_signs_count_twice() -> None:
    found = bound(lambda x: op.exp(x) + op.exp(-x), lambda x: 3 * op.exp(x), {"x": (3,)})
    assert found.degree_y == 4
    assert found.per_test == pytest.approx(4 / W31.q, rel=1e-6)


def test_theorem_two_falls_apart_where_the_mixed_set_bound_does_not() -> None:
    softmax: Program = lambda q, k, v: op.softmax(q @ k) @ v  # noqa: E731
    other: Program = lambda q, k, v: (op.exp(q @ k) @ v) / op.sum(op.exp(q @ (2 * k)))  # noqa: E731
    by_keys = {}
    for keys in (2, 8, 64):
        found = bound(softmax, other, {"q": (1, 4), "k": (4, keys), "v": (keys, 1)}, W61)
        by_keys[keys] = found.bounds
        assert found.name == "mixed sets"
        assert found.per_test is not None
        assert found.per_test < 1e-16
    assert by_keys[2]["theorem 2"] < 1 < by_keys[64]["theorem 2"]


def test_theorem_two_serves_where_exponents_are_dependent() -> None:
    found = bound(lambda x, y: op.exp(x * y), lambda x, y: op.exp(x) * op.exp(y), {"x": (3, 4), "y": (3, 4)})
    assert found.name == "theorem 2"
    assert found.per_test == pytest.approx(8 * 2 * 2**4 / W31.q + W31.q ** (-1 / 4))
    assert found.premises == ()


def test_no_bound_says_why() -> None:
    found = bound(
        lambda q, k: op.sum(op.exp(q @ k), axis=-2), lambda q, k: op.sum(op.exp(2 * (q @ k)), axis=-2) + op.sum(
            op.exp(q @ k), axis=-2), {"q": (40, 3), "k": (3, 50)})  # fmt: skip
    assert found.per_test is not None  # rows of q differ
    found = bound(
        lambda q, k: op.sum(op.sum(op.exp(q @ k)), axis=-2),
        lambda q, k: op.sum(op.sum(op.exp(2 * (q @ k))), axis=-2),
        {"q": (40, 3), "k": (3, 50)},
    )
    assert found.per_test is None
    assert "not shown to be independent" in found.reason
    assert found.explain().startswith("no bound: exponents")
    assert needed(found, 1e-9) is None
    assert combined(found, 100) == 1.0


# ------------------------------------------------------------------------------------------------------------- heights
def test_a_constant_that_is_one_modulo_p_is_not_taken_for_one() -> None:
    """X * 2147024880.0 and X * 1.0 agree at every point of the 31-bit pair: 2147024880 = p + 1."""
    x: dict[str, Shape] = {"x": (3, 4)}
    found = bound(lambda x: x * 2147024880.0, lambda x: x * 1.0, x)
    assert found.per_test is not None
    assert 2**found.height == pytest.approx(2147024881)
    assert found.pairs_needed == 2
    assert any("second, independent pair" in text for text in found.assumptions)
    assert bound(lambda x: x * 2147024880.0, lambda x: x * 1.0, x, W61).pairs_needed == 1


def test_constants_beside_exponentials_count() -> None:
    x: dict[str, Shape] = {"x": (3, 4)}
    assert bound(lambda x: op.exp(x) * 2147024880.0, lambda x: op.exp(x) * 1.0, x).pairs_needed == 2
    assert bound(lambda x: op.exp(x) * 2147024880.0, lambda x: op.exp(x) * 1.0, x, W61).pairs_needed == 1


def test_a_coefficient_between_the_primes_leaves_one_side() -> None:
    """2^30 is larger than q and smaller than p: what is shown modulo p alone counts, without an assumption."""
    found = bound(lambda x: x * float(2**30), lambda x: x * 1.0, {"x": (3, 4)})
    assert W31.q < 2**30 + 1 < W31.p
    assert found.per_test == pytest.approx(1 / W31.p)
    assert (found.pairs_needed, found.assumptions) == (1, ())


def test_denominators_of_constants_count() -> None:
    small = bound(lambda x: x * 0.1, lambda x: x * 0.2, {"x": (3,)}, W20)
    assert small.height == pytest.approx(1.585, abs=1e-3)  # (1 + 2) x / 10
    large = bound(lambda x: x * 0.1234567, lambda x: x * 0.2, {"x": (3,)}, W20)
    assert large.pairs_needed == 2


def test_roots_of_numbers_double_the_height() -> None:
    found = bound(lambda x: op.sqrt(2 * x), lambda x: op.sqrt(x) * 1.4142135, {"x": (3, 4)})
    assert found.pairs_needed == 2
    assert bound(lambda x: op.sqrt(2 * x), lambda x: op.sqrt(x) * 1.4142135, {"x": (3, 4)}, W61).pairs_needed == 1


# ------------------------------------------------------------------------------------------- sides, pieces, random functions
def test_comparing_modulo_p_alone() -> None:
    both = bound(lambda x, w: x @ w, lambda x, w: 2 * (x @ w), {"x": (2, 5), "w": (5, 3)})
    one = bound(lambda x, w: x @ w, lambda x, w: 2 * (x @ w), {"x": (2, 5), "w": (5, 3)}, compare_q=False)
    assert both.per_test == pytest.approx(2 / W31.p * 2 / W31.q)
    assert one.per_test == pytest.approx(2 / W31.p)


def test_an_output_that_went_through_exp_is_compared_modulo_p_alone() -> None:
    found = bound(lambda x, y: x * op.exp(y) / op.exp(y), lambda x, y: 2 * x + 0 * y, {"x": (3,), "y": (3,)})
    assert found.per_test == pytest.approx(1 / W31.p, rel=1e-6)


def test_the_weakest_output_counts() -> None:
    pair: dict[str, Shape] = {"x": (2, 2), "y": (2, 2)}
    found = bound(lambda x, y: (x, x @ y @ x), lambda x, y: (x, y @ x @ y), pair)
    assert found.degree_u == 3
    assert found.per_test == pytest.approx(9 / (W31.p * W31.q))


def test_piecewise_operators_are_bounded_cell_by_cell() -> None:
    found = bound(lambda x, y: op.relu(x) * y, lambda x, y: op.maximum(x, y), {"x": (3,), "y": (3,)})
    assert found.per_cell
    assert found.degree_u == 2
    assert "each cell" in found.explain()


def test_random_functions_add_the_chance_that_arguments_meet() -> None:
    found = bound(lambda x, y: op.log(x + y), lambda x, y: op.log(x * y), {"x": (3,), "y": (3,)})
    assert found.opaque == ("log",)
    assert found.per_test == pytest.approx(2 * 2 / W31.p, rel=1e-6)  # two calls, arguments of degree 2
    assert any("random function" in text for text in found.assumptions)


def test_a_second_exp_is_opaque() -> None:
    found = bound(lambda x: op.exp(op.exp(x)), lambda x: op.exp(op.exp(2 * x)), {"x": (3,)})
    assert found.opaque == ("exp",)
    assert found.per_test is not None
    assert found.per_test < 1e-7


def test_a_second_exp_of_dependent_exponents_has_no_bound() -> None:
    found = bound(lambda x, y: op.exp(op.exp(x * y) + op.exp(x) + op.exp(y)), lambda x, y: op.exp(op.exp(x)) + 0 * y,
                  {"x": (3,), "y": (3,)})  # fmt: skip
    assert found.per_test is None


def test_a_rescaled_accumulator_that_is_not_understood_has_no_bound() -> None:
    kernel = KernelBuilder("decay")
    x, r = kernel.input("X", (2, 24), "float32"), kernel.input("R", (2, 24), "float32")
    block = kernel.block(x, r, loop=12)
    block.save(block.accumulate(block.load(x, fmap=1), "rescale", rescale=op.sum(block.load(r, fmap=1))))
    kernel.output(*block.finish())
    graph = kernel.build()
    assert "rescaled accumulator" in bound_per_test(graph, graph, W31).reason


def test_other_output_shapes_have_no_bound() -> None:
    left, right = (trace(fn, x=(2, 3)) for fn in (lambda x: op.sum(x), lambda x: x * 1))
    assert "shapes" in bound_per_test(left, right, W31).reason


def test_a_pair_too_small_for_the_denominators_says_so() -> None:
    softmax: Program = lambda x: op.softmax(x)  # noqa: E731
    found = bound(softmax, lambda x: op.softmax(2 * x), {"x": (64, 4)}, FieldPair(167, 83, "p167"))
    assert "too small for so many denominators" in found.reason


def test_the_pair_of_the_paper_has_roots_modulo_p_only() -> None:
    paper = field_pair("paper")
    assert not paper.root_on_q
    found = bound(
        lambda x, w: op.rms_norm(x, eps=0) @ w, lambda x, w: x @ w / op.rms(x), {"x": (1, 4), "w": (4, 1)}, paper
    )
    assert found.per_test is not None
    assert found.per_test > 4 / paper.p


# ------------------------------------------------------------------------------------------------------ tests and errors
@pytest.mark.parametrize(
    ("per_test", "error", "tests"),
    [
        (1e-3, 1e-9, 3),
        (1e-3, 1.1e-9, 3),
        (1e-3, 0.9e-9, 4),
        (0.5, 1e-9, 30),
        (1e-10, 1e-9, 1),
        (0.0, 1e-9, 1),
        (1.0, 0.1, None),
    ],
)
def test_how_many_tests_an_error_needs(per_test: float, error: float, tests: int | None) -> None:
    found = Bound(per_test=per_test, name="mixed sets")
    assert needed(found, error) == tests
    if tests is not None:
        assert combined(found, tests) <= error
        assert tests == 1 or combined(found, tests - 1) > error


@pytest.mark.parametrize("error", [0.0, 1.0, -1e-9, 2.0])
def test_an_error_that_is_no_probability_is_refused(error: float) -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        needed(Bound(per_test=0.1, name="mixed sets"), error)


def test_no_test_says_nothing() -> None:
    assert combined(Bound(per_test=0.1, name="mixed sets"), 0) == 1.0


def test_the_bound_explains_itself() -> None:
    text = of_program("qk_norm_attention", W31).describe()
    assert "mixed sets" in text
    assert "theorem 2" in text
    assert "checked: integer coefficients" in text
    assert "elements of input 1 of its own" in text
