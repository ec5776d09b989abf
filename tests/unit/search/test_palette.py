"""Which operators a search applies."""

from __future__ import annotations

from fractions import Fraction

from tests.unit.search.searched import GATED, NORM, PRODUCT, graph_of
from workbench.domains.abstract_expr import Axis
from workbench.domains.abstract_normal_form import Algebra
from workbench.search.palette import Effect, palette_of
from workbench.search.problem import problem_of
from workbench.search.space import TABLE_1, Space
from workbench.ugraph.value import clamp, maximum


def test_the_default_palette_is_table_1_and_the_program_s_own() -> None:
    palette = palette_of(problem_of(NORM), Space())
    names = {op.name for op in palette.operators}
    assert set(TABLE_1) <= names
    assert {"rms", "mean", "rms_norm"} <= names
    assert "softmax" not in names
    assert {op.effect for op in palette.operators if op.name == "rms_norm"} == {Effect.WHOLE}
    assert {op.effect for op in palette.operators if op.name in ("rms", "mean", "sum")} == {Effect.FOLD}


def test_what_is_not_offered_is_only_looked_through() -> None:
    palette = palette_of(problem_of(PRODUCT), Space(palette=("matmul",)))
    assert palette.matmul.is_offered
    assert not palette.add.is_offered
    assert not palette.maximum.is_offered


def test_constants_are_offered_where_the_program_has_them_and_freely_on_request() -> None:
    problem = problem_of(graph_of(lambda x: maximum(clamp(x * 3, 0, 6), 1), X=(8, 16)))
    operators = palette_of(problem, Space()).operators
    assert {(op.name, op.constant) for op in operators if op.constant is not None} == {("maximum", Fraction(1))}
    assert [dict(op.attributes) for op in operators if op.name == "scale"] == [{"factor": Fraction(3)}]
    free = palette_of(problem_of(NORM), Space(free_scale=True))
    factors = {dict(op.attributes)["factor"] for op in free.operators if op.name == "scale" and not op.completes}
    assert factors >= {Fraction(1, number) for number in problem_of(NORM).numbers.values()}


def test_products_of_concatenations_are_an_option() -> None:
    assert palette_of(problem_of(PRODUCT), Space()).join.is_offered
    assert not palette_of(problem_of(PRODUCT), Space(concatenation=False)).join.is_offered
    assert palette_of(problem_of(PRODUCT), Space()).join.cost == 3


def test_an_operator_acts_on_normal_forms_by_its_abstract_rule() -> None:
    algebra, palette = Algebra(), palette_of(problem_of(GATED), Space())
    a, b = Axis("a"), Axis("b")
    x = algebra.symbol("x", [a, b])
    assert palette.square.abstract(algebra, (x,)) == algebra.mul(x, x)
    assert palette.div.abstract(algebra, (x, x)) == algebra.div(x, x)
    mask = algebra.axes_mask([b])
    assert palette.sum.abstract(algebra, (x,), mask) == algebra.sum_mask(mask, x)


def test_the_order_of_the_program_does_not_matter() -> None:
    one = graph_of(lambda x, y: (clamp(x, 0, 1), maximum(x, y)), X=(8, 16), Y=(8, 16))
    two = graph_of(lambda x, y: (maximum(x, y), clamp(x, 0, 1)), X=(8, 16), Y=(8, 16))
    assert palette_of(problem_of(one), Space()).names == palette_of(problem_of(two), Space()).names
