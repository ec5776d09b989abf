"""The axis map, tried by perturbation: changing one operand element changes exactly the elements the map says."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import assert_never

import numpy as np

from tests.conformance.operator_checks.cases import ANY, CASES, Case, operands_of
from workbench.core.shapes import Shape
from workbench.ops.spec import (
    Array,
    AttributeValue,
    AxisMap,
    Concatenated,
    Dim,
    DimSource,
    Factor,
    OpSpec,
    Piece,
    Product,
    Regrouped,
    Same,
)

TOLERANCE = 1e-12


def check_axes(spec: OpSpec) -> None:
    """Compare the map's dependences with observed ones, for every operand element; and that it leaves no axis out."""
    rng = np.random.default_rng(2)
    for case in CASES[spec.name]:
        attributes = case.complete(spec)
        results = spec.infer_shapes(case.shapes, attributes)
        axis_map = spec.axes(case.shapes, attributes)
        assert tuple(len(sources) for sources in axis_map.results) == tuple(len(shape) for shape in results), case
        _check_extents(axis_map, case.shapes, results)
        observed = _observed(spec, case, attributes, rng)
        for operand, shape in enumerate(case.shapes):
            for index in np.ndindex(shape):
                for number, result in enumerate(results):
                    expected = _dependent(axis_map, number, result, case.shapes, operand, index)
                    assert (observed[operand, index][number] == expected).all(), (case, operand, index, number)


def _observed(
    spec: OpSpec, case: Case, attributes: dict[str, AttributeValue], rng: np.random.Generator
) -> dict[tuple[int, tuple[int, ...]], list[Array]]:
    """Return per operand element which result elements change, over several draws and perturbations.

    A piecewise operator shows a dependence only where the element matters, so large changes of both signs are tried.
    """
    masks: dict[tuple[int, tuple[int, ...]], list[Array]] = {}
    for _ in range(3):
        operands = operands_of(case, rng)
        before = spec.on_float(operands, attributes, 0)
        for operand, array in enumerate(operands):
            for index in np.ndindex(array.shape):
                seen = masks.setdefault((operand, index), [np.zeros(result.shape, bool) for result in before])
                for value in _perturbed(float(array[index]), case.sign(operand)):
                    changed = array.copy()
                    changed[index] = value
                    after = spec.on_float((*operands[:operand], changed, *operands[operand + 1 :]), attributes, 0)
                    for mask, old, new in zip(seen, before, after, strict=True):
                        mask |= ~(abs(new - old) <= TOLERANCE)
    return masks


def _perturbed(value: float, sign: str) -> Iterator[float]:
    if sign == ANY:
        yield from (value + 4.5, value - 4.5, value + 0.37)
    else:
        yield from (value * 7.0, value * 0.01)


# --------------------------------------------------------------------------------------------------- what the map says
def dims_of(source: DimSource | Dim) -> tuple[Dim, ...]:
    """Return the operand dimensions a source speaks of."""
    match source:
        case Dim():
            return (source,)
        case Same() | Product() | Concatenated() | Regrouped():
            return source.dims
        case Factor() | Piece():
            return (source.dim,)
        case _:
            assert_never(source)


def _check_extents(axis_map: AxisMap, shapes: tuple[Shape, ...], results: tuple[Shape, ...]) -> None:
    """Every operand dimension above 1 is kept or folded, all of it; what is said to run together has one extent."""
    kept: set[Dim] = set()
    factors: dict[tuple[Dim, tuple[int, ...]], set[int]] = {}

    def extent(dim: Dim) -> int:
        return shapes[dim.operand][dim.axis]

    for group in axis_map.reduced:
        assert len({part.extents[part.position] if isinstance(part, Factor) else extent(part) for part in group}) == 1
    for group in axis_map.reduced:
        for part in group:
            if isinstance(part, Factor):
                factors.setdefault((part.dim, part.extents), set()).add(part.position)
            else:
                kept.add(part)
    pieces: dict[Dim, set[int]] = {}
    for shape, sources in zip(results, axis_map.results, strict=True):
        for length, source in zip(shape, sources, strict=True):
            if isinstance(source, Factor):
                factors.setdefault((source.dim, source.extents), set()).add(source.position)
                assert prod(source.extents) == extent(source.dim)
                assert source.extents[source.position] == length
            elif isinstance(source, Piece):
                pieces.setdefault(source.dim, set()).update(range(source.start, source.start + source.extent))
                assert source.extent == length
            else:
                kept.update(dims_of(source))
            if isinstance(source, Same):
                assert all(extent(dim) == length for dim in source.dims)
            if isinstance(source, Product):
                assert prod(extent(dim) for dim in source.dims) == length
            if isinstance(source, Concatenated):
                assert sum(extent(dim) for dim in source.dims) == length
            if isinstance(source, Regrouped):
                assert source.extents[source.position] == length
    kept |= {dim for (dim, extents), positions in factors.items() if positions == set(range(len(extents)))}
    kept |= {dim for dim, covered in pieces.items() if covered == set(range(extent(dim)))}
    for operand, shape in enumerate(shapes):
        for axis in range(-len(shape), 0):
            assert shape[axis] == 1 or Dim(operand, axis) in kept, f"axis {axis} of operand {operand} is left out"


def _dependent(
    axis_map: AxisMap,
    number: int,
    result: Shape,
    shapes: tuple[Shape, ...],
    operand: int,
    index: tuple[int, ...],
) -> Array:
    """Return, as a mask over a result, which of its elements may depend on one operand element."""
    folded = {part for group in axis_map.reduced for part in group if isinstance(part, Dim)}
    grid = np.indices(result)
    mask = np.ones(result, bool)
    for position, source in enumerate(axis_map.results[number]):
        own = [dim for dim in dims_of(source) if dim.operand == operand]
        if not own or any(dim in folded for dim in own):
            continue
        where = [index[dim.axis] for dim in own]
        extents = [shapes[operand][dim.axis] for dim in own]
        match source:
            case Same():
                place = where[0]
            case Product():
                place = int(np.ravel_multi_index(where, extents))
            case Factor():
                place = int(np.unravel_index(where[0], source.extents)[source.position])
            case Regrouped():
                place = int(np.unravel_index(np.ravel_multi_index(where, extents), source.extents)[source.position])
            case Concatenated():
                before = [dim for dim in source.dims if dim.operand < operand]
                place = where[0] + sum(shapes[dim.operand][dim.axis] for dim in before)
            case Piece():
                place = where[0] - source.start
            case _:
                assert_never(source)
        mask &= grid[position] == place
    return mask
