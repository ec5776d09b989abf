"""How a factor per row passes through operators: what may be scaled beforehand because it cancels in the end.

A value v of degree k in a scale c means v = v' * c^k, where v' is what is computed and c has one number per row (every axis
but the last). Invariant: a degree that is returned follows from the operators' own homogeneity; where it does not,
`NotHomogeneous` says which scales are concerned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from workbench.core.shapes import Shape
from workbench.ops.attributes import integer
from workbench.ops.spec import Attributes, OpKind
from workbench.ugraph.nodes import AccumulatorKind, OpNode


@dataclass(frozen=True, slots=True, order=True)
class Scale:
    """The exponential of one row maximum.

    Attributes: key: the exponential it belongs to; parts: over how many blocks the last axis was split: the columns of
    such a value come in `parts` groups, each with a factor of its own, until a sum over the groups joins them.
    """

    key: str
    parts: int = 1


Degree = Mapping[Scale, Fraction]
NONE: Degree = {}


class NotHomogeneous(Exception):
    """Scales do not pass through an operator; caught by the rewrite, which then leaves their exponentials alone."""

    def __init__(self, scales: Sequence[Scale], reason: str) -> None:
        """Keep the keys of the scales and the reason."""
        super().__init__(reason)
        self.keys, self.reason = frozenset(scale.key for scale in scales), reason


def operator_degree(
    node: OpNode, degrees: Sequence[Degree], shapes: Sequence[Shape], result: Shape, *, where: str
) -> Degree:
    """Return the degree of an operator's results, given those of its operands.

    `a / b` of two values of degree 1 has degree 0; `exp(a)` has none unless a has degree 0. Raises: NotHomogeneous.
    """
    scales = sorted({scale for degree in degrees for scale in degree})
    if not scales:
        return NONE
    found: dict[Scale, Fraction] = {}
    groups = node.spec.homogeneous(node.attribute_map)
    for scale in scales:
        exponents = [degree.get(scale, Fraction(0)) for degree in degrees]
        joined = joined_parts(node, scale, shapes)
        if joined is None:
            _check_rows(node, scale, exponents, shapes, result, where)
        total, counted = Fraction(0), set[int]()
        for group in groups:
            members = group.operands or tuple(range(len(exponents)))
            values = {exponents[member] for member in members}
            if len(values) != 1:
                raise NotHomogeneous(scales, f"{where}: {node.op} of values that are scaled differently")
            total += group.degree * values.pop()
            counted |= set(members)
        if any(exponent and number not in counted for number, exponent in enumerate(exponents)):
            raise NotHomogeneous(scales, f"{where}: a factor does not pass through {node.op}")
        if total:
            key = joined or scale
            found[key] = found.get(key, Fraction(0)) + total
    return found


def joined_parts(node: OpNode, scale: Scale, shapes: Sequence[Shape]) -> Scale | None:
    """Return the scale of a sum over the parts of a split axis, None for any other operator."""
    if scale.parts == 1 or len(shapes) != 1 or not shapes[0] or shapes[0][-1] % scale.parts:
        return None
    width = shapes[0][-1] // scale.parts
    attributes = node.attribute_map
    is_sum = node.op == "sum" and width == 1 and integer(attributes, "axis") == -1
    is_columns = node.op == "sum_to_columns" and integer(attributes, "columns") == width
    return Scale(scale.key) if is_sum or is_columns else None


def _check_rows(
    node: OpNode, scale: Scale, exponents: Sequence[Fraction], shapes: Sequence[Shape], result: Shape, where: str
) -> None:
    """Raises: NotHomogeneous unless a factor per row of the operands is a factor per row of the result."""
    scaled = [number for number, exponent in enumerate(exponents) if exponent]
    if scale.parts > 1:
        raise NotHomogeneous([scale], f"{where}: {node.op} before the parts of the split axis are added up")
    kind, attributes = node.spec.kind, node.attribute_map
    if any(len(shapes[number]) != len(result) or shapes[number][:-1] != result[:-1] for number in scaled):
        raise NotHomogeneous([scale], f"{where}: {node.op} does not keep rows apart")
    keeps = (
        kind is OpKind.ELEMENTWISE
        or (kind is OpKind.REDUCTION and _folds_last_axis(attributes))
        or (kind is OpKind.CONTRACTION and scaled == [0])
        or (kind is OpKind.MOVEMENT and node.op in ("concat", "split") and integer(attributes, "axis") == -1)
    )
    if not keeps:
        raise NotHomogeneous([scale], f"{where}: {node.op} mixes rows that are scaled differently")


def _folds_last_axis(attributes: Attributes) -> bool:
    """Return True unless an operator says that it folds another axis."""
    return "axis" not in attributes or integer(attributes, "axis") == -1


LINEAR = (AccumulatorKind.SUM, AccumulatorKind.SUM_DIM, AccumulatorKind.SUM_TO_COLUMNS)
"""Accumulators through which a factor per row passes, in the loop or outside it."""
