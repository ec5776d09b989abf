"""Powers and roots by closed forms; what an integer exponent costs."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests.unit.ops.apply_operator import result
from workbench.errors import AttributeValueError
from workbench.ops import operator


def test_powers_and_roots() -> None:
    assert result("square", [3.0, -2.0]).tolist() == [9.0, 4.0]
    assert result("sqrt", [9.0, 2.25]).tolist() == [3.0, 1.5]
    assert result("rsqrt", [4.0, 0.25]).tolist() == [0.5, 2.0]
    assert result("power", [2.0, -2.0], exponent=3).tolist() == [8.0, -8.0]
    assert result("power", [2.0, -4.0], exponent=-1).tolist() == [0.5, -0.25]
    assert result("pow", [2.0, 9.0], [3.0, 0.5]).tolist() == [8.0, 3.0]


@pytest.mark.parametrize(
    ("exponent", "multiplications"), [(1, 0), (2, 1), (3, 2), (4, 2), (7, 4), (8, 3), (10, 4), (-3, 3)]
)
def test_an_integer_power_costs_its_squarings(exponent: int, multiplications: int) -> None:
    """Repeated squaring: floor(log2 n) squarings and one product per further bit; a negative one divides once."""
    assert operator("power").work(((),), {"exponent": exponent}).flops == multiplications


def test_exponents_out_of_range_point_to_pow() -> None:
    with pytest.raises(AttributeValueError, match="between -64 and 64; use pow"):
        operator("power").check_attributes({"exponent": 65})


def test_the_degree_of_a_power_is_its_exponent() -> None:
    (rule,) = operator("power").homogeneous({"exponent": -3})
    assert (rule.operands, rule.degree, rule.positive) == ((0,), Fraction(-3), False)
