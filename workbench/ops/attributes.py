"""What operators' attributes may be: converters, normalisation by shape, typed reading.

Invariant: a stored axis is counted from the end and a stored shape has no -1, so rules need not look at leading axes.
"""

from __future__ import annotations

import operator as python_operator
from collections.abc import Mapping
from fractions import Fraction
from math import prod

from workbench.core.shapes import Shape, negative_axis
from workbench.errors import ShapeError
from workbench.ops.spec import Attribute, Attributes, AttributeValue, OpSpec, as_fraction


# ------------------------------------------------------------------------------------------------------ conversion
def as_integer(value: object) -> int:
    """Return an integer. Raises: TypeError for floats, truth values and everything else that is not one."""
    if isinstance(value, bool):
        raise TypeError("a truth value is not an integer")
    try:
        return python_operator.index(value)  # type: ignore[arg-type]  # index() itself refuses what is no integer
    except TypeError:
        raise TypeError(f"{type(value).__name__} is not an integer") from None


def as_positive_integer(value: object) -> int:
    """Return an integer of at least 1. Raises: TypeError, ValueError."""
    number = as_integer(value)
    if number < 1:
        raise ValueError("it must be at least 1")
    return number


def as_not_negative(value: object) -> Fraction:
    """Return an exact number of at least 0. Raises: TypeError, ValueError."""
    number = as_fraction(value)
    if number < 0:
        raise ValueError("it must not be negative")
    return number


def as_extents(value: object) -> tuple[int, ...]:
    """Return extents of a shape; at most one may be -1 ("what is left"). Raises: TypeError, ValueError."""
    if isinstance(value, str):
        raise TypeError("a string is not a shape")
    extents = tuple(as_integer(extent) for extent in value) if hasattr(value, "__iter__") else (as_integer(value),)
    if any(extent < 1 and extent != -1 for extent in extents) or extents.count(-1) > 1:
        raise ValueError("every extent must be at least 1, only one may be -1")
    return extents


def as_parts(value: object) -> AttributeValue:
    """Return a number of equal parts, or the parts' extents when they differ. Raises: TypeError, ValueError."""
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return as_positive_integer(value)
    extents = tuple(as_positive_integer(extent) for extent in value)
    if not extents:
        raise ValueError("there must be at least one part")
    return len(extents) if len(set(extents)) == 1 else extents


# -------------------------------------------------------------------------------------------------- normalisation
def _axis_from_the_end(value: AttributeValue, shapes: tuple[Shape, ...]) -> AttributeValue:
    assert isinstance(value, int)
    return negative_axis(value, len(shapes[0])) if shapes else value


def _resolve_extents(value: AttributeValue, shapes: tuple[Shape, ...]) -> AttributeValue:
    assert isinstance(value, tuple)
    if -1 not in value or not shapes:
        return value
    known, total = prod(extent for extent in value if extent != -1), prod(shapes[0])
    if total % known:
        raise ShapeError(f"{total} elements of {shapes[0]} do not fill {value}: {known} does not divide {total}")
    return tuple(total // known if extent == -1 else extent for extent in value)


def normalize_attributes(spec: OpSpec, attributes: Attributes, shapes: tuple[Shape, ...]) -> dict[str, AttributeValue]:
    """Return converted attributes as a node stores them for operands of these (trailing) shapes.

    Axes are counted from the end, -1 in a shape is resolved; normalised attributes stay as they are.
    Raises: ShapeError for an axis that does not exist or extents that do not fit.
    """
    result = dict(attributes)
    for attribute in spec.attributes:
        if attribute.normalize is not None:
            try:
                result[attribute.name] = attribute.normalize(attributes[attribute.name], shapes)
            except ShapeError as error:
                raise ShapeError(f"operator {spec.name}: {error}") from error
    return result


def complete_attributes(
    spec: OpSpec, given: Mapping[str, object], shapes: tuple[Shape, ...]
) -> dict[str, AttributeValue]:
    """Return given attributes converted, with defaults, and normalised for operands of these shapes.

    Raises: AttributeValueError, ShapeError.
    """
    if not given and not spec.attributes:
        return {}
    return normalize_attributes(spec, spec.check_attributes(given), shapes)


AXIS = Attribute("axis", as_integer, -1, "the axis, counted from the end", _axis_from_the_end)
EXTENTS = Attribute("shape", as_extents, None, "give the new extents", _resolve_extents)


# --------------------------------------------------------------------------------------------------------- reading
def integer(attributes: Attributes, name: str) -> int:
    """Return an attribute that its converter made an integer."""
    value = attributes[name]
    assert isinstance(value, int)
    return value


def fraction(attributes: Attributes, name: str) -> Fraction:
    """Return an attribute that its converter made an exact number."""
    value = attributes[name]
    assert isinstance(value, (int, Fraction))
    return Fraction(value)


def extents(attributes: Attributes, name: str) -> tuple[int, ...]:
    """Return an attribute that its converter made a tuple of integers."""
    value = attributes[name]
    assert isinstance(value, tuple)
    return value


def text(attributes: Attributes, name: str) -> str:
    """Return an attribute that its converter made a string."""
    value = attributes[name]
    assert isinstance(value, str)
    return value
