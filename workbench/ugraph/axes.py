"""The axes of a program: dimensions unified by its operators, named, with what each is free in and reduced by.

`X[b, h] @ W[h, d]` has the axes b, h, d. A dimension can be a product of axes (16 splits * 64 columns) or lay axes one
after the other. A tensor that is used twice may show other axes in one of its uses (X in X @ X^T). Inside block graphs
the maps are read as "which axis is split by which grid axis, which is looped". Invariant: no tensor has an axis twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from workbench.errors import UnknownNameError
from workbench.ugraph.atoms import AtomKind, Run
from workbench.ugraph.axis_maps import BlockMaps, DimAxes, maps_for
from workbench.ugraph.dataflow import Dataflow, Path, flatten
from workbench.ugraph.inference import GRID_AXES, LOOP
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import Accumulator, InputIterator
from workbench.ugraph.separation import separated_dimensions

__all__ = ["Axis", "AxisAnalysis", "AxisRole", "BlockAxes", "BlockMaps", "DimAxes", "Names", "analyze_axes", "maps_for"]

Names = Mapping[str, Sequence[str | int]]


class AxisRole(Enum):
    """What a program does with an axis."""

    FREE = "free"
    REDUCED = "reduced"
    BOTH = "free and reduced"
    UNUSED = "unused"


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis.

    Attributes:
        name, extent.
        free_in: names of the outputs that keep it, or a part of it.
        reduced_by: paths of the results of the operators and accumulators that fold it, or a part of it.
        parts: the axes it is made of, outermost first, where a reshape or a partial sum takes it apart.
        joins: for a concatenation, the axes of each part.
        copy_of: the axis that this one copies: the same dimension of a tensor in another of its uses.
        part_of: the axis that a launch cuts it from.
    """

    name: str
    extent: int
    free_in: tuple[str, ...] = ()
    reduced_by: tuple[Path, ...] = ()
    parts: tuple[str, ...] = ()
    joins: tuple[DimAxes, ...] = ()
    copy_of: str | None = None
    part_of: str | None = None

    @property
    def role(self) -> AxisRole:
        """Free, reduced, both or unused."""
        if self.free_in:
            return AxisRole.BOTH if self.reduced_by else AxisRole.FREE
        return AxisRole.REDUCED if self.reduced_by else AxisRole.UNUSED


@dataclass(frozen=True, slots=True)
class BlockAxes:
    """The maps of one block graph as axes.

    Attributes: grid: per grid axis x, y, z, the axes whose dimensions it splits (one, but for block graphs that split
    several alike); loop: the axes that the loop splits; tiles: per axis that is cut, the name of its tile.
    """

    grid: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
    loop: tuple[str, ...]
    tiles: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AxisAnalysis:
    """The axes of a program.

    Attributes: axes: by name, in order of appearance, axes of the program first, then parts that cuts make; tensors: per
    value (path of names from the outside inwards), the axes of each dimension; operands: per step (path of its first
    result) and operand, what it sees, which differs from `tensors` for a copied axis; blocks: per graph-defined operator.
    """

    axes: Mapping[str, Axis]
    tensors: Mapping[Path, tuple[DimAxes, ...]]
    operands: Mapping[tuple[Path, int], tuple[DimAxes, ...]]
    blocks: tuple[BlockAxes, ...]

    def axis(self, name: str) -> Axis:
        """Return the axis of this name. Raises: UnknownNameError."""
        if name not in self.axes:
            raise UnknownNameError(f"no axis {name!r}; the program has: {', '.join(self.axes)}")
        return self.axes[name]

    def dims(self, *path: str) -> tuple[DimAxes, ...]:
        """Return the axes of a tensor: `dims("X")`, of a tile `dims("O", "x")`. Raises: UnknownNameError."""
        if path not in self.tensors:
            raise UnknownNameError(f"no value {'/'.join(path)!r}")
        return self.tensors[path]

    def describe(self) -> str:
        """Return one line per axis: extent, role, where."""
        lines = []
        for axis in self.axes.values():
            folds = ", ".join(dict.fromkeys("/".join(path) for path in axis.reduced_by))
            words = [f"{axis.name} = {axis.extent}: {axis.role.value}"]
            words += [f"in {', '.join(axis.free_in)}"] if axis.free_in else []
            words += [f"by {folds}"] if folds else []
            words += [f"made of {' * '.join(axis.parts)}"] if axis.parts else []
            words += [f"joins {' + '.join('*'.join(dim) for dim in axis.joins)}"] if axis.joins else []
            words += [f"copy of {axis.copy_of}"] if axis.copy_of else []
            words += [f"part of {axis.part_of}"] if axis.part_of else []
            lines.append("; ".join(words))
        return "\n".join(lines)


def analyze_axes(graph: KernelGraph, names: Names | None = None) -> AxisAnalysis:
    """Return the axes of a program.

    names: per input, the names of its dimensions, as `TracedProgram.signature` has them; other axes are called a, b, c,
    ... in the order in which inputs, outputs and intermediate tensors show them. Parts that a launch cuts axis h into
    are `h.x` (blocks along grid axis x), `h.loop`, `h.tile`, with the launch's number behind if there are several.
    """
    return _Analysis(flatten(graph), names or {}).result()


class _Analysis:
    """Names atoms and collects what happens to them."""

    def __init__(self, flow: Dataflow, names: Names) -> None:
        self.flow, self.given = flow, names
        self.dimensions = separated_dimensions(flow)
        self.atoms = self.dimensions.atoms
        self.names: dict[int, str] = {}
        self.groups: dict[Run, str] = {}  # whole axes that are taken apart
        self.cut_parts: dict[str, set[int]] = {}  # axis -> atoms of its cuts, loops left out
        self.part_of: dict[str, str] = {}
        self._letters = self._letter_names()

    def result(self) -> AxisAnalysis:
        blocks = self._name_all()
        tensors = {self.flow.paths[value]: self._dim_axes(dims) for value, dims in self.dimensions.values.items()}
        operands = {
            (step.path, position): self._dim_axes(self.dimensions.use(number, position))
            for number, step in enumerate(self.flow.steps)
            for position in range(len(step.operands))
        }
        return AxisAnalysis(self._axes(), tensors, operands, blocks)

    # ------------------------------------------------------------------------------------------------------- names
    def _letter_names(self) -> Iterator[str]:
        number = 0
        while True:
            suffix = str(number) if number else ""
            yield from (letter + suffix for letter in "abcdefghijklmnopqrstuvw")
            number += 1

    def _unique(self, wanted: str | None) -> str:
        taken = {*self.names.values(), *self.groups.values()}
        if wanted is None:
            promised = {name for dims in self.given.values() for name in dims}
            return next(name for name in self._letters if name not in taken and name not in promised)
        number, name = 2, wanted
        while name in taken:
            number, name = number + 1, f"{wanted}_{number}"
        return name

    def _name_all(self) -> tuple[BlockAxes, ...]:
        """Name the axes of inputs and outputs, then, in order, what cuts and intermediate tensors add."""
        flow, values = self.flow, self.dimensions.values
        for value, tensor in enumerate(flow.graph.inputs):
            for run, wanted in zip(values[value], self.given.get(tensor.name, ()), strict=False):
                if isinstance(wanted, str):
                    self._name_run(self.atoms.normal(run), wanted)
        for value in range(len(flow.graph.inputs)):
            self._name_dims(value)
        self._name_copies()
        for value in flow.outputs:
            self._name_dims(value)
        blocks: list[BlockAxes] = []
        for step in flow.steps:
            if step.launch is not None and step.launch == len(blocks):
                blocks.append(self._name_block_axes(step.launch))
            for value in step.results:
                if len(flow.paths[value]) == 1:
                    self._name_dims(value)
                    self._name_copies()
        return tuple(blocks)

    def _name_copies(self) -> None:
        """Name copies after their originals, where these have names."""
        for (number, position), copies in self.dimensions.copies.items():
            value = self.flow.steps[number].operands[position]
            for run, copy in zip(self.dimensions.values[value], copies, strict=True):
                name = self._name_of(self.atoms.normal(run))
                if name is not None:
                    self._name_run(self.atoms.normal(copy), name)

    def _name_dims(self, value: int) -> None:
        for run in self.dimensions.values[value]:
            self._name_run(self.atoms.normal(run), None)

    def _name_run(self, run: Run, wanted: str | None) -> None:
        unnamed = [atom for atom in run if atom not in self.names]
        if len(run) > 1 and unnamed == list(run):
            whole = self.groups[run] = self._unique(wanted)
            for position, atom in enumerate(run):
                self.names[atom] = f"{whole}.{position}"
            return
        for atom in unnamed:
            self.names[atom] = self._unique(wanted if len(run) == 1 else None)

    def _name_of(self, run: Run) -> str | None:
        return self.groups.get(run) or (self.names.get(run[0]) if len(run) == 1 else None)

    def _name_block_axes(self, launch: int) -> BlockAxes:
        suffix = str(launch) if len(self.flow.launches) > 1 else ""
        grid: list[dict[str, None]] = [{}, {}, {}]
        loop: dict[str, None] = {}
        tiles: dict[str, str] = {}
        for cut in self.atoms.cuts:
            if cut.launch != launch:
                continue
            base = self.atoms.normal(cut.base)
            if self._name_of(base) is None:
                self._name_run(base, None)
            axis = self._name_of(base) or "*".join(self.names[atom] for atom in base)
            parts = self.cut_parts.setdefault(axis, set())
            for number, count in zip(cut.axes, cut.counts, strict=True):
                (grid[number] if number < LOOP else loop).setdefault(axis)
                label = f"{axis}.{'loop' if number == LOOP else GRID_AXES[number]}{suffix}"
                for atom in self.atoms.resolve((count,)):
                    self._name_part(atom, label, axis)
                    if number < LOOP:
                        parts.add(atom)
            tile = self.atoms.resolve(cut.tile)
            for position, atom in enumerate(tile):
                whole = f"{axis}.tile{suffix}"
                self._name_part(atom, whole if len(tile) == 1 else f"{whole}.{position}", axis)
                parts.add(atom)
            tiles[axis] = "*".join(self.names[atom] for atom in tile)
        return BlockAxes((tuple(grid[0]), tuple(grid[1]), tuple(grid[2])), tuple(loop), tiles)

    def _name_part(self, atom: int, label: str, axis: str) -> None:
        if atom not in self.names:
            self.names[atom] = self._unique(label)
            self.part_of[self.names[atom]] = axis

    def _dim_axes(self, dims: Sequence[Run]) -> tuple[DimAxes, ...]:
        return tuple(self._axes_of(self.atoms.normal(run)) for run in dims)

    def _axes_of(self, run: Run) -> DimAxes:
        result: list[str] = []
        at = 0
        while at < len(run):
            for whole, name in self.groups.items():
                resolved = self.atoms.resolve(whole)
                if run[at : at + len(resolved)] == resolved:
                    result.append(name)
                    at += len(resolved)
                    break
            else:
                if run[at] not in self.names:
                    self.names[run[at]] = self._unique(None)
                result.append(self.names[run[at]])
                at += 1
        return tuple(result)

    # ------------------------------------------------------------------------------------------------------- roles
    def _axes(self) -> dict[str, Axis]:
        wholes: list[tuple[Run, str]] = [*self.groups.items(), *(((atom,), name) for atom, name in self.names.items())]
        reducers, copies = self._reducers(), self._copies()
        joins = {self.atoms.resolve(run): parts for run, parts in self.atoms.sums}
        shown = {
            self.flow.paths[value][0]: self._with_joined(
                {atom for dim in self.dimensions.values[value] for atom in self.atoms.normal(dim)}
            )
            for value in self.flow.outputs
        }
        found: dict[str, Axis] = {}
        for run, name in sorted(wholes, key=lambda whole: whole[1] in self.part_of):
            atoms = {*run, *self.cut_parts.get(name, ())}
            folds = tuple(path for path, folded in reducers if atoms & folded)
            free = tuple(output for output, present in shown.items() if atoms & present)
            whole = self.part_of.get(name)
            if whole is not None and not folds:  # a part of an axis that is put together again
                free = found[whole].free_in if whole in found else ()
            parts = tuple(self.names[atom] for atom in run) if len(run) > 1 else ()
            found[name] = Axis(
                name,
                self.atoms.extent(run),
                free,
                folds,
                parts,
                self._dim_axes(joins.get(run, ())),
                copies.get(name),
                whole,
            )
        order = [name for dims in self._kernel_dims() for dim in dims for name in dim]
        names = sorted(dict.fromkeys([*order, *found]), key=lambda name: name in self.part_of)
        return {name: found[name] for name in names}

    def _with_joined(self, atoms: set[int]) -> set[int]:
        """Return atoms and those of the parts of concatenations among them."""
        result = set(atoms)
        for run, parts in reversed(self.atoms.sums):
            if result & set(self.atoms.resolve(run)):
                result |= {atom for part in parts for atom in self.atoms.normal(part)}
        return result

    def _kernel_dims(self) -> list[tuple[DimAxes, ...]]:
        return [
            self._dim_axes(dims) for value, dims in self.dimensions.values.items() if len(self.flow.paths[value]) == 1
        ]

    def _reducers(self) -> list[tuple[Path, set[int]]]:
        """Return, per step that folds something, the atoms; a loop folds the axes that its value was looped over."""
        looped: dict[int, frozenset[int]] = {}
        result = []
        for number, step in enumerate(self.flow.steps):
            depends = frozenset[int]().union(*(looped.get(value, frozenset()) for value in step.operands))
            if isinstance(step.node, InputIterator):
                base = self.dimensions.use(number, 0)[step.node.fmap] if step.node.fmap is not None else ()
                depends = frozenset(self.atoms.normal(base))
            folded = {
                atom
                for run in self.dimensions.reduced[number]
                for atom in self.atoms.resolve(run)
                if not self.atoms.has_kind(atom, AtomKind.LOOP)
            }
            if isinstance(step.node, Accumulator):
                assert step.launch is not None
                folded |= depends
                if depends:
                    folded.update(self.atoms.resolve((self.dimensions.loop[step.launch],)))
                depends = frozenset()
            if folded:
                result.append((step.path, self._with_joined(folded)))
            looped.update(dict.fromkeys(step.results, depends))
        return result

    def _copies(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for (number, position), dims in self.dimensions.copies.items():
            value = self.flow.steps[number].operands[position]
            for run, copy in zip(self.dimensions.values[value], dims, strict=True):
                original, name = self._name_of(self.atoms.normal(run)), self._name_of(self.atoms.normal(copy))
                if original is not None and name is not None and name != original:
                    found[name] = original
        return found
