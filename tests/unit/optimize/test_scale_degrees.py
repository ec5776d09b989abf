from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from workbench.core.tensors import SharedTensor
from workbench.ops.attributes import complete_attributes
from workbench.ops.registry import operator, operators
from workbench.ops.spec import AttributeValue
from workbench.optimize.scale_degrees import NotHomogeneous, Scale, joined_parts, operator_degree
from workbench.ugraph.nodes import OpNode

SCALE = Scale("s")
ONE = Fraction(1)
ATTRIBUTES: dict[str, dict[str, AttributeValue]] = {
    "clamp": {"lo": Fraction(0), "hi": Fraction(1)}, "power": {"exponent": 3}, "pow": {}, "scale": {"factor": Fraction(3)},
    "sum_to_columns": {"columns": 2}, "reshape": {"shape": (2, 8)}, "broadcast": {"shape": (4, 4)}, "split": {"parts": 2},
}  # fmt: skip


def node_of(name: str, shapes: tuple[tuple[int, ...], ...], **given: AttributeValue) -> OpNode:
    spec = operator(name)
    attributes = complete_attributes(spec, ATTRIBUTES.get(name, {}) | given, shapes)
    results = spec.infer_shapes(shapes, attributes)
    tensors = tuple(SharedTensor(f"r{number}", shape) for number, shape in enumerate(results))
    return OpNode(
        name, tuple(f"x{number}" for number in range(len(shapes))), tensors, tuple(sorted(attributes.items()))
    )


def cases() -> list[tuple[str, tuple[tuple[int, ...], ...], dict[str, AttributeValue]]]:
    found: list[tuple[str, tuple[tuple[int, ...], ...], dict[str, AttributeValue]]] = []
    for spec in operators():
        if spec.name in ("constant", "concat"):
            continue
        shapes = ((4, 4),) * (spec.arity or 2)
        names = [attribute.name for attribute in spec.attributes]
        axes: list[dict[str, AttributeValue]] = [{"axis": -1}, {"axis": -2}] if "axis" in names else [{}]
        found += [(spec.name, shapes, axis) for axis in axes]
    return found


@pytest.mark.parametrize(("name", "shapes", "given"), cases(), ids=lambda value: str(value))
def test_what_is_said_of_an_operator_holds_for_numbers(
    name: str, shapes: tuple[tuple[int, ...], ...], given: dict[str, AttributeValue]
) -> None:
    """For every operator and every choice of scaled operands: refused, or scaling rows scales the result as stated."""
    node = node_of(name, shapes, **given)
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(0.5, 2.0, shape) for shape in shapes]
    accepted = 0
    for exponents in np.ndindex(*(3,) * len(shapes)):
        powers = [exponent - 1 for exponent in exponents]  # -1, 0, 1
        degrees = [{SCALE: Fraction(power)} if power else {} for power in powers]
        try:
            degree = operator_degree(node, degrees, shapes, node.results[0].shape, where="test")
        except NotHomogeneous:
            continue
        accepted += 1
        factors = np.array([[0.7], [1.9], [1.3], [0.4]])
        scaled = [
            array * factors[: array.shape[0]] ** power if power else array
            for array, power in zip(arrays, powers, strict=True)
        ]
        before = node.spec.on_float(tuple(arrays), node.attribute_map, 0)
        after = node.spec.on_float(tuple(scaled), node.attribute_map, 0)
        for old, new in zip(before, after, strict=True):
            total = float(degree.get(SCALE, Fraction(0)))
            np.testing.assert_allclose(new, old * (factors**total if total else 1.0), rtol=1e-9)
    assert accepted >= 1  # nothing scaled is always fine


def test_quotients_cancel_and_sums_of_unlike_do_not() -> None:
    shapes = ((3, 4), (3, 1))
    div, add = node_of("div", shapes), node_of("add", shapes)
    both = [{SCALE: ONE}, {SCALE: ONE}]
    assert operator_degree(div, both, shapes, (3, 4), where="") == {}
    assert operator_degree(node_of("mul", shapes), both, shapes, (3, 4), where="") == {SCALE: 2}
    assert operator_degree(add, both, shapes, (3, 4), where="") == {SCALE: 1}
    with pytest.raises(NotHomogeneous, match="scaled differently") as fault:
        operator_degree(add, [{SCALE: ONE}, {}], shapes, (3, 4), where="here")
    assert fault.value.keys == {"s"}


def test_rows_that_are_broadcast_are_not_kept_apart() -> None:
    shapes = ((1, 4), (3, 4))
    with pytest.raises(NotHomogeneous, match="rows apart"):
        operator_degree(node_of("mul", shapes), [{SCALE: ONE}, {}], shapes, (3, 4), where="")


def test_parts_are_joined_by_the_sum_over_them_only() -> None:
    split = Scale("s", 4)
    total, columns = node_of("sum", ((3, 4),)), node_of("sum_to_columns", ((3, 8),), columns=2)
    assert joined_parts(total, split, [(3, 4)]) == SCALE
    assert joined_parts(columns, split, [(3, 8)]) == SCALE
    assert joined_parts(node_of("sum_to_columns", ((3, 8),), columns=4), split, [(3, 8)]) is None
    assert operator_degree(columns, [{split: ONE}], [(3, 8)], (3, 2), where="") == {SCALE: 1}
    with pytest.raises(NotHomogeneous, match="parts"):
        operator_degree(node_of("exp", ((3, 4),)), [{split: ONE}], [(3, 4)], (3, 4), where="")
    with pytest.raises(NotHomogeneous, match="added up"):
        operator_degree(node_of("scale", ((3, 4),)), [{split: ONE}], [(3, 4)], (3, 4), where="")
