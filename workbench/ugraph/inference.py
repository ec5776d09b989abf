"""Shapes, raggedness and places of the nodes of a block graph. Invariant: the one place where a result tile is computed.

The builder calls it to make tiles, the legality check to see that recorded tiles are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from fractions import Fraction
from typing import assert_never

from workbench.core.dtypes import DType
from workbench.core.shapes import Shape
from workbench.core.tensors import DeviceTensor, RaggedSplit, SharedTensor
from workbench.errors import (
    AccumulatorError,
    DTypeError,
    FmapError,
    ImapError,
    OmapError,
    PlaceError,
    RaggedTileError,
)
from workbench.ops.spec import (
    Attributes,
    AxisMap,
    Concatenated,
    Dim,
    DimSource,
    Factor,
    OpKind,
    OpSpec,
    Piece,
    Product,
    Regrouped,
    Same,
)
from workbench.ugraph.nodes import AccumulatorKind, DimMap

GRID_AXES = "xyz"
LOOP = 3
_Ragged = tuple[RaggedSplit | None, ...]


class Place(Enum):
    """When a value of a block graph exists: in every iteration, after the loop, or the same at all times."""

    LOOP = "loop"
    AFTER = "after the loop"
    INVARIANT = "loop-invariant"


def promote(dtypes: Sequence[DType], *, where: str) -> DType:
    """Return the type of a result of operands of these types: the widest. Raises: DTypeError for fp16 beside bf16."""
    if dtypes and dtypes.count(dtypes[0]) == len(dtypes):
        return dtypes[0]
    ranks = {DType.FLOAT16: 0, DType.BFLOAT16: 0, DType.FLOAT32: 1, DType.FLOAT64: 2}
    kinds = set(dtypes)
    widest = max(kinds, key=lambda dtype: ranks[dtype])
    if {DType.FLOAT16, DType.BFLOAT16} <= kinds and ranks[widest] == 0:
        raise DTypeError(
            f"{where}: float16 and bfloat16 meet; neither holds the other's values, convert one to float32"
        )
    return widest


def tile_of(
    tensor: DeviceTensor, imap: DimMap, fmap: int | None, grid_dims: Shape, forloop_range: int, *, node: str
) -> tuple[Shape, _Ragged]:
    """Return the full tile's shape, and per axis how tiles are ragged.

    The grid cuts a dimension first (x, then y, then z if several split the same one), then the loop cuts each part;
    every cut gives parts of ceil(extent / count). Raises: ImapError, FmapError for a dimension that does not exist.
    """
    rank = len(tensor.shape)
    for axis, dim in enumerate(imap):
        if dim is not None and not 0 <= dim < rank:
            raise ImapError(
                f"grid axis {GRID_AXES[axis]} splits dimension {dim} of {tensor.name}, which has rank {rank}",
                node,
                f"use 0 to {rank - 1}, or None to replicate",
            )
    if fmap is not None and not 0 <= fmap < rank:
        raise FmapError(
            f"the loop splits dimension {fmap} of {tensor.name}, which has rank {rank}",
            node,
            f"use 0 to {rank - 1} or None",
        )
    shape, ragged = [], []
    for dim, extent in enumerate(tensor.shape):
        cuts = [(axis, grid_dims[axis]) for axis in range(3) if imap[axis] == dim and grid_dims[axis] > 1]
        if fmap == dim and forloop_range > 1:
            cuts.append((LOOP, forloop_range))
        tile, even = extent, True
        for _, count in cuts:
            even = even and tile % count == 0
            tile = -(-tile // count)
        shape.append(tile)
        ragged.append(None if even else RaggedSplit(extent, tuple(cuts)))
    return tuple(shape), tuple(ragged)


def merge_places(places: Sequence[Place], *, node: str) -> Place:
    """Return the place of an operator's result. Raises: PlaceError when loop body and after the loop meet."""
    is_after = Place.AFTER in places
    if Place.LOOP not in places:
        return Place.AFTER if is_after else Place.INVARIANT
    if is_after:
        raise PlaceError(
            "an operand of the loop body meets one of after the loop", node, "accumulate the loop-body operand first"
        )
    return Place.LOOP


MOST_INFERRED = 20_000
"""Operators on tiles whose results are remembered: a search builds thousands of block graphs of the same few."""

_INFERRED: dict[tuple[object, ...], list[tuple[Shape, _Ragged]]] = {}


def apply_operator(
    spec: OpSpec, attributes: Attributes, operands: Sequence[SharedTensor], *, node: str
) -> list[tuple[Shape, _Ragged]]:
    """Return shape and raggedness of each result tile of an operator inside a block.

    Raises: ShapeError from the operator, RaggedTileError when a short tile meets a full one, is reshaped or stretched.
    """
    key = (spec.name, *attributes.items(), *[(tensor.shape, tensor.ragged) for tensor in operands])
    found = _INFERRED.get(key)
    if found is None:
        found = _apply_operator(spec, attributes, operands, node)
        if len(_INFERRED) < MOST_INFERRED:
            _INFERRED[key] = found
    return list(found)


def _apply_operator(
    spec: OpSpec, attributes: Attributes, operands: Sequence[SharedTensor], node: str
) -> list[tuple[Shape, _Ragged]]:
    shapes = tuple(tensor.shape for tensor in operands)
    results = spec.infer_shapes(shapes, attributes)
    if not any(tensor.is_ragged for tensor in operands):
        return [(shape, (None,) * len(shape)) for shape in results]
    axis_map = spec.axes(shapes, attributes)
    for group in axis_map.reduced:
        _one_split([dim for dim in group if isinstance(dim, Dim)], operands, node, broadcasts=False)
        _refuse_ragged([dim.dim for dim in group if isinstance(dim, Factor)], operands, node)
    _refuse_stretched(axis_map, operands, node)
    broadcasts = spec.kind is not OpKind.MOVEMENT
    return [
        (shape, tuple(_source_split(source, operands, node, broadcasts) for source in axis_map.results[number]))
        for number, shape in enumerate(results)
    ]


def _one_split(
    dims: Sequence[Dim], operands: Sequence[SharedTensor], node: str, *, broadcasts: bool
) -> RaggedSplit | None:
    """Return how dimensions that are one axis are cut; a full one of extent 1 fits any cut where it is broadcast."""
    splits = {
        split
        for dim in dims
        for split in (operands[dim.operand].ragged[dim.axis],)
        if split is not None or not broadcasts or operands[dim.operand].shape[dim.axis] > 1
    }
    if len(splits) > 1:
        raise RaggedTileError(
            f"tiles cut in different ways run together: {sorted(map(str, splits))}", node, "cut both operands alike"
        )
    return splits.pop() if splits else None


def _source_split(
    source: DimSource, operands: Sequence[SharedTensor], node: str, broadcasts: bool
) -> RaggedSplit | None:
    match source:
        case Same():
            return _one_split(source.dims, operands, node, broadcasts=broadcasts)
        case Product() | Concatenated() | Regrouped():
            _refuse_ragged(source.dims, operands, node)
            return None
        case Factor() | Piece():
            _refuse_ragged((source.dim,), operands, node)
            return None
        case _:
            assert_never(source)


def _refuse_stretched(axis_map: AxisMap, operands: Sequence[SharedTensor], node: str) -> None:
    """Raises: RaggedTileError for a ragged axis that the operator neither keeps nor folds.

    Tiles of one element, some of them empty, would be broadcast: where there is no element, nothing can be repeated.
    """
    seen = {dim.dim if isinstance(dim, Factor) else dim for group in axis_map.reduced for dim in group}
    for source in (source for result in axis_map.results for source in result):
        seen |= {source.dim} if isinstance(source, Factor | Piece) else set(source.dims)
    for number, tensor in enumerate(operands):
        for axis in range(-len(tensor.shape), 0):
            if tensor.ragged[axis] is not None and Dim(number, axis) not in seen:
                raise RaggedTileError(
                    f"axis {axis} of {tensor.name}, empty in some tiles, is broadcast",
                    node,
                    "choose counts that divide the axis",
                )


def _refuse_ragged(dims: Sequence[Dim], operands: Sequence[SharedTensor], node: str) -> None:
    if any(operands[dim.operand].ragged[dim.axis] is not None for dim in dims):
        raise RaggedTileError(
            "a ragged axis is reshaped, joined or split", node, "choose counts that divide the axis, or move it outside"
        )


def accumulate(
    kind: AccumulatorKind,
    operand: SharedTensor,
    *,
    place: Place,
    rescale: SharedTensor | None,
    columns: int | None,
    node: str,
    eps: Fraction = Fraction(0),
) -> tuple[Shape, _Ragged]:
    """Return shape and raggedness of an accumulator's result.

    Raises: AccumulatorError for a value of after the loop, missing or needless columns, rescaling factor or eps;
    RaggedTileError when a raggedly looped axis would be added element on element.
    """
    if place is Place.AFTER:
        raise AccumulatorError(
            "its operand was accumulated before", node, "use an operator, or accumulate another value"
        )
    if (rescale is not None) != (kind in (AccumulatorKind.RESCALE, AccumulatorKind.RESCALE_SUM)):
        raise AccumulatorError(
            f"kind {kind.value} {'needs a' if rescale is None else 'takes no'} rescaling factor",
            node,
            "give rescale= with the kinds rescale and rescale_sum, and only with them",
        )
    if (columns is not None) != (kind is AccumulatorKind.SUM_TO_COLUMNS):
        raise AccumulatorError(
            f"kind {kind.value} {'needs a number of' if columns is None else 'takes no'} columns",
            node,
            "give columns= with the kind sum_to_columns, and only with it",
        )
    if eps < 0 or (eps and kind is not AccumulatorKind.RMS):
        what = "takes no eps" if kind is not AccumulatorKind.RMS else f"takes no negative eps {eps}"
        raise AccumulatorError(f"kind {kind.value} {what}", node, "give eps= with the kind rms, at least 0")
    shape, ragged = list(operand.shape), list(operand.ragged)
    if (kind.reduces_last_axis or kind is AccumulatorKind.SUM_TO_COLUMNS) and not shape:
        raise AccumulatorError(f"kind {kind.value} folds the last axis of a scalar", node, "use kind sum")
    if kind is AccumulatorKind.SUM_TO_COLUMNS:
        if not isinstance(columns, int) or columns < 1 or shape[-1] % columns:
            raise AccumulatorError(
                f"{columns} columns do not divide the last axis of extent {shape[-1]}", node, "choose a divisor"
            )
        if ragged[-1] is not None:
            raise RaggedTileError("a ragged axis is folded to columns", node, "choose counts that divide the axis")
        shape[-1] = columns
    elif kind.reduces_last_axis:
        shape[-1], ragged[-1] = 1, None
    for axis, split in enumerate(ragged):
        if split is not None and any(cut == LOOP for cut, _ in split.parts):
            raise RaggedTileError(
                f"axis {axis} is looped in parts of unequal length and not folded",
                node,
                "fold the axis, or choose a loop count that divides it",
            )
    if rescale is not None:
        _check_rescale(operand, rescale, node)
    return tuple(shape), tuple(ragged)


def _check_rescale(operand: SharedTensor, rescale: SharedTensor, node: str) -> None:
    """Raises: AccumulatorError unless the factor broadcasts, RaggedTileError where its tiles end otherwise."""
    last = rescale.ragged[-1] if rescale.ragged else None
    if last is not None and any(cut == LOOP for cut, _ in last.parts):
        raise RaggedTileError(
            "the rescaling factor varies along an axis that is looped in parts of unequal length",
            node,
            "use a factor that is constant along the axis, or a loop count that divides it",
        )
    if len(rescale.shape) > len(operand.shape):
        raise AccumulatorError(
            f"the rescaling factor of shape {rescale.shape} has more axes than the operand of shape {operand.shape}",
            node,
            "reshape it",
        )
    for axis in range(-len(rescale.shape), 0):
        if rescale.shape[axis] not in (1, operand.shape[axis]):
            raise AccumulatorError(
                f"rescaling factor of shape {rescale.shape} does not broadcast to {operand.shape}",
                node,
                "use a factor with one element per row",
            )
        constant = rescale.shape[axis] == 1 and rescale.ragged[axis] is None
        if not constant and rescale.ragged[axis] != operand.ragged[axis]:
            raise RaggedTileError(
                f"axis {axis} of the rescaling factor is cut otherwise than the operand's", node, "cut both alike"
            )


def saved_shape(tile: SharedTensor, omap: DimMap, grid_dims: Shape, *, node: str) -> Shape:
    """Return the shape of the device tensor that the blocks write together.

    Raises: OmapError when blocks would write the same elements, or for a dimension that does not exist;
    RaggedTileError when a ragged tile is not laid out along the grid axes that cut it.
    """
    rank = len(tile.shape)
    for axis, dim in enumerate(omap):
        if dim is None and grid_dims[axis] > 1:
            raise OmapError(
                f"the {grid_dims[axis]} blocks along grid axis {GRID_AXES[axis]} write the same elements",
                node,
                "map the axis to a dimension of the output",
            )
        if dim is not None and not 0 <= dim < rank:
            raise OmapError(
                f"grid axis {GRID_AXES[axis]} is laid along dimension {dim} of a tile of rank {rank}",
                node,
                f"use 0 to {rank - 1}",
            )
    shape = []
    for dim, extent in enumerate(tile.shape):
        cuts = tuple((axis, grid_dims[axis]) for axis in range(3) if omap[axis] == dim and grid_dims[axis] > 1)
        split = tile.ragged[dim]
        if split is not None:
            if split.parts != cuts:
                raise RaggedTileError(
                    f"dimension {dim} was cut along {_cut_names(split.parts)} and is laid along {_cut_names(cuts)}",
                    node,
                    "lay a ragged axis along the grid axes that cut it",
                )
            shape.append(split.extent)
            continue
        for _, count in cuts:
            extent *= count
        shape.append(extent)
    return tuple(shape)


def _cut_names(parts: Sequence[tuple[int, int]]) -> str:
    return " then ".join(f"{'loop' if axis == LOOP else GRID_AXES[axis]}:{count}" for axis, count in parts) or "nothing"


def accumulator_dtype(dtype: DType) -> DType:
    """Return the type an accumulator keeps: float32, or float64 for float64."""
    return DType.FLOAT64 if dtype is DType.FLOAT64 else DType.FLOAT32
