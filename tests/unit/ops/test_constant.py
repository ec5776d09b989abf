"""Constants: exact, of shape (), with leading axes of extent 1 where the interpreter has some."""

from __future__ import annotations

from fractions import Fraction

from workbench.domains.work import Work
from workbench.ops import operator


def test_a_constant_is_kept_exactly_and_rounded_once() -> None:
    spec = operator("constant")
    attributes = spec.check_attributes({"value": 0.1})
    assert attributes == {"value": Fraction(1, 10)}
    (array,) = spec.on_float((), attributes, 0)
    assert array.shape == ()
    assert float(array) == 0.1


def test_leading_axes_have_extent_one() -> None:
    (array,) = operator("constant").on_float((), {"value": Fraction(3)}, 4)
    assert array.shape == (1, 1, 1, 1)


def test_a_constant_costs_nothing() -> None:
    assert operator("constant").work((), {"value": Fraction(1)}) == Work()
    assert operator("constant").infer_shapes((), {"value": Fraction(1)}) == ((),)
