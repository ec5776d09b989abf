"""From "which axis is split by which grid axis, which is looped" to imap, fmap and omap.

Invariant: the choice is made once for a whole block graph; every tensor that has an axis is cut along it, others are
replicated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench.errors import NotApplicableError, UnknownNameError
from workbench.ugraph.inference import GRID_AXES
from workbench.ugraph.nodes import DimMap, dim_map

DimAxes = tuple[str, ...]
"""The axes of one dimension, the outermost first; empty for a dimension of extent 1 that a sum left."""

TensorAxes = Sequence[DimAxes]


@dataclass(frozen=True, slots=True)
class BlockMaps:
    """Maps of a block graph. Attributes: imaps, fmaps: per input tensor; omaps: per output tensor."""

    imaps: tuple[DimMap, ...]
    fmaps: tuple[int | None, ...]
    omaps: tuple[DimMap, ...]


def maps_for(
    inputs: Sequence[TensorAxes],
    outputs: Sequence[TensorAxes],
    *,
    grid: Mapping[str, str],
    loop: str | None = None,
    lay: Mapping[str, str | int] | None = None,
) -> BlockMaps:
    """Return the maps of a block graph that reads and writes tensors with these axes.

    inputs, outputs: per tensor, the axes of each dimension, as `AxisAnalysis.dims` returns them.
    grid: grid axis x, y or z -> the axis it splits; loop: the axis that the loop splits.
    lay: for a grid axis whose axis the outputs do not have (it is folded within each block), the axis in front of which
    the blocks' partial results are laid: {"y": "d"} makes a dimension (blocks along y) * d; or a dimension's number.

        maps_for([(("b",), ("h",)), (("h",), ("d",))], [(("b",), ("d",))], grid={"x": "d"}, loop="h")
        imaps (None, None, None) and (1, None, None), fmaps 1 and 0, omaps (1, None, None)

    Raises: UnknownNameError for an axis that no input has, NotApplicableError where an axis lies inside a product, or an
    output has no place for what the blocks make.
    """
    lay = dict(lay or {})
    for letter in {*grid, *lay}:
        if letter not in GRID_AXES or letter not in grid:
            raise UnknownNameError(
                f"grid axis {letter!r} splits nothing; use x, y, z and say in `grid` what each splits"
            )
    known = {name for tensor in inputs for dim in tensor for name in dim}
    for axis in (*grid.values(), *([loop] if loop else [])):
        if axis not in known:
            raise UnknownNameError(f"no input has an axis {axis!r}; they have: {', '.join(sorted(known))}")
    imaps = [dim_map(tuple(_where(tensor, grid.get(letter)) for letter in GRID_AXES)) for tensor in inputs]
    fmaps = [_where(tensor, loop) for tensor in inputs]
    omaps = [dim_map(tuple(_saved(tensor, letter, grid, lay) for letter in GRID_AXES)) for tensor in outputs]
    return BlockMaps(tuple(imaps), tuple(fmaps), tuple(omaps))


def _where(tensor: TensorAxes, axis: str | None) -> int | None:
    """Return the dimension that is cut when an axis is, None if the tensor does not have it."""
    if axis is None:
        return None
    for number, dim in enumerate(tensor):
        if axis in dim:
            if dim[0] != axis:
                raise NotApplicableError(
                    f"axis {axis} lies inside the product {' * '.join(dim)}; only its outermost axis, {dim[0]}, can be cut"
                )
            return number
    return None


def _saved(tensor: TensorAxes, letter: str, grid: Mapping[str, str], lay: Mapping[str, str | int]) -> int | None:
    if letter not in grid:
        return None
    found = _where(tensor, grid[letter])
    if found is not None:
        return found
    if letter not in lay:
        raise NotApplicableError(
            f"an output does not have axis {grid[letter]}, which grid axis {letter} splits; "
            "say with `lay` where the blocks' partial results go"
        )
    wanted = lay[letter]
    place = _where(tensor, wanted) if isinstance(wanted, str) else wanted
    if place is None or not 0 <= place < len(tensor):
        what = "axis" if isinstance(wanted, str) else "dimension"
        raise NotApplicableError(f"an output does not have {what} {wanted}, where grid axis {letter} is to be laid")
    for other, axis in grid.items():
        if axis in tensor[place] and other < letter:
            raise NotApplicableError(
                f"grid axis {other} splits {axis} outside of the blocks along {letter}; exchange {other} and {letter}"
            )
    return place
