"""Which atoms the dimensions of every value are made of, derived step by step from the operators' axis rules.

Invariant: two dimensions share an atom exactly where operators, maps and cuts force their indices to run together.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import assert_never

from workbench.core.shapes import Shape
from workbench.core.tensors import DeviceTensor
from workbench.ops.spec import AxisMap, Concatenated, Dim, DimSource, Factor, Piece, Product, Regrouped, Same
from workbench.ugraph.atoms import AtomKind, Atoms, Run
from workbench.ugraph.dataflow import Dataflow, Step
from workbench.ugraph.inference import LOOP
from workbench.ugraph.nodes import Accumulator, AccumulatorKind, InputIterator, OpNode, OutputSaver, RunningMax

SIZE_ATTRIBUTES = frozenset(
    {("reshape", "shape"), ("broadcast", "shape"), ("sum_to_columns", "columns"), ("split", "parts")}
)
"""Attributes (operator, name) that are extents and follow when sizes change; all others say what is computed."""

_COUNTING = (
    AccumulatorKind.SUM,
    AccumulatorKind.SUM_DIM,
    AccumulatorKind.SUM_TO_COLUMNS,
    AccumulatorKind.RESCALE,
    AccumulatorKind.RESCALE_SUM,
)
"""Accumulators whose result grows with the number of iterations when every iteration adds the same."""

_LOOP_BIT = 1 << LOOP

MOST_AXIS_MAPS = 20_000
"""Operators on shapes whose axis maps are remembered: a search looks at thousands of graphs of the same few."""

_AXIS_MAPS: dict[tuple[object, ...], AxisMap] = {}

Dims = tuple[Run, ...]
Use = tuple[int, int]  # number of the step, position of the operand


class Dimensions:
    """The dimensions of a dataflow as runs of atoms.

    Attributes:
        atoms, flow: what they are runs of, and of what.
        values: per value, the run of each of its dimensions.
        separate: uses of a value whose dimensions are copies: the same extents, but other indices (X in X @ X^T).
        copies: per separate use, the runs it sees in place of the value's.
        reduced: per step, the runs it folds; the loop's atom for an accumulator.
        grid, loop: per launch, the atoms of its counts.
        step: number of the step that is being derived.
    """

    def __init__(self, flow: Dataflow, atoms: Atoms, separate: Collection[Use] = ()) -> None:
        self.flow, self.atoms, self.separate = flow, atoms, frozenset(separate)
        self.values: dict[int, Dims] = {}
        self.copies: dict[Use, Dims] = {}
        self.reduced: dict[int, list[Run]] = {}
        self.grid: list[Run] = []
        self.loop: list[int] = []
        self.step = 0
        self._varies: dict[int, int] = {}  # per tile, along which grid axes and whether over the loop (3), as bits
        for node in flow.launches:
            self.grid.append(tuple(atoms.fresh(count, AtomKind.GRID) for count in node.block.grid_dims))
            self.loop.append(atoms.fresh(node.block.forloop_range, AtomKind.LOOP))

    def derive(self) -> None:
        """Go through all steps, then draw the conclusions."""
        for number, step in enumerate(self.flow.steps):
            self.step = number
            self.reduced[number] = []
            results = self._results(number, step)
            for value, dims in zip(step.results, results, strict=True):
                self.values[value] = dims
                self.atoms.beside(dims)
            self._fix_multiplicities(step)
        self.atoms.settle()

    def _fix_multiplicities(self, step: Step) -> None:
        """Let a count never change that says how often the same is added or stored: 64 iterations of x are 64 x."""
        varies = 0
        for value in step.operands:
            varies |= self._varies[value]
        match step.node:
            case InputIterator():
                varies = _LOOP_BIT if step.node.fmap is not None else 0
                for axis, dim in enumerate(step.node.imap):
                    varies |= 0 if dim is None else 1 << axis
            case Accumulator(kind=kind):
                assert step.launch is not None
                if not varies & _LOOP_BIT and kind in _COUNTING:
                    self.atoms.fix((self.loop[step.launch],))
                varies &= ~_LOOP_BIT
            case OutputSaver():
                assert step.launch is not None
                grid = self.grid[step.launch]
                self.atoms.fix(
                    [
                        grid[axis]
                        for axis, dim in enumerate(step.node.omap)
                        if dim is not None and not varies >> axis & 1
                    ]
                )
                varies = 0
            case _:
                pass
        for value in step.results:
            self._varies[value] = varies

    def use(self, number: int, position: int) -> Dims:
        """Return the runs that a step sees of one of its operands."""
        if (number, position) in self.copies:
            return self.copies[number, position]
        dims = self.values[self.flow.steps[number].operands[position]]
        if (number, position) not in self.separate:
            return dims
        copied = tuple(
            tuple(self.atoms.fresh(self.atoms.extents[atom], AtomKind.AXIS) for atom in self.atoms.normal(run))
            for run in dims
        )
        self.atoms.beside(copied)
        self.copies[number, position] = copied
        return copied

    # ------------------------------------------------------------------------------------------------------ per step
    def _results(self, number: int, step: Step) -> list[Dims]:
        operands = [self.use(number, position) for position in range(len(step.operands))]
        match step.node:
            case DeviceTensor():
                return [tuple((self.atoms.fresh(extent, AtomKind.AXIS),) for extent in step.node.shape)]
            case OpNode():
                return self._operator(step, operands)
            case InputIterator():
                return [self._load(step, operands[0])]
            case Accumulator():
                return [self._accumulate(step, operands)]
            case RunningMax():
                self.reduced[number].append(operands[0][-1])
                return [(*operands[0][:-1], ())] * 2
            case OutputSaver():
                return [self._save(step, operands[0])]
            case _:
                assert_never(step.node)

    def _operator(self, step: Step, operands: list[Dims]) -> list[Dims]:
        node = step.node
        assert isinstance(node, OpNode)
        shapes = tuple([self.flow.shapes[value] for value in step.operands])
        axis_map = _axis_map(node, shapes)
        made = _Sources(self.atoms, operands)
        results = []
        for value, sources in zip(step.results, axis_map.results, strict=True):
            shape = self.flow.shapes[value]
            results.append(tuple([made.run(source, shape[axis], node) for axis, source in enumerate(sources)]))
        for group in axis_map.reduced:
            runs = [made.reduced(member) for member in group]
            for run in runs[1:]:
                self.atoms.same(runs[0], run)
            self.reduced[self.step].append(runs[0])
        made.fix_stretched()
        return results

    def _load(self, step: Step, dims: Dims) -> Dims:
        node, launch = step.node, step.launch
        assert isinstance(node, InputIterator)
        assert launch is not None
        tile = []
        for dim, run in enumerate(dims):
            axes = [axis for axis in range(LOOP) if node.imap[axis] == dim] + ([LOOP] if node.fmap == dim else [])
            counts = tuple(self.loop[launch] if axis == LOOP else self.grid[launch][axis] for axis in axes)
            extent = self.flow.shapes[step.results[0]][dim]
            tile.append(self.atoms.cut(launch, run, tuple(axes), counts, extent) if axes else run)
        return tuple(tile)

    def _accumulate(self, step: Step, operands: list[Dims]) -> Dims:
        node, launch = step.node, step.launch
        assert isinstance(node, Accumulator)
        assert launch is not None
        dims = operands[0]
        if len(operands) > 1:  # the rescaling factor broadcasts
            for run, other in zip(reversed(dims), reversed(operands[1]), strict=False):
                if self.atoms.extent(run) == self.atoms.extent(other):
                    self.atoms.same(run, other)
                else:
                    self.atoms.fix(other)
        if node.kind is AccumulatorKind.SUM_TO_COLUMNS:
            assert node.columns is not None
            factors = self._factors(dims[-1], (self.atoms.extent(dims[-1]) // node.columns, node.columns))
            self.reduced[self.step].append(factors[0])
            dims = (*dims[:-1], factors[1])
        elif node.kind.reduces_last_axis:
            self.reduced[self.step].append(dims[-1])
            dims = (*dims[:-1], ())
        self.reduced[self.step].append((self.loop[launch],))
        return dims

    def _factors(self, run: Run, extents: tuple[int, ...]) -> list[Run]:
        return _Sources(self.atoms, [(run,)]).factors(Dim(0, -1), extents)

    def _save(self, step: Step, dims: Dims) -> Dims:
        node, launch = step.node, step.launch
        assert isinstance(node, OutputSaver)
        assert launch is not None
        return tuple(self.atoms.normal(self._laid_along(launch, node, dim, run) + run) for dim, run in enumerate(dims))

    def _laid_along(self, launch: int, node: OutputSaver, dim: int, run: Run) -> Run:
        """Return the counts along a dimension: of its map, and those of 1 that cut the same dimension."""
        counts = (*self.grid[launch], self.loop[launch])
        mapped = {axis for axis in range(LOOP) if node.omap[axis] == dim}
        single = {axis for axis in range(LOOP) if node.omap[axis] is None}
        single |= {LOOP} if self.atoms.extents[counts[LOOP]] == 1 else set()
        for cut in self.atoms.cuts:
            fits = cut.launch == launch and mapped <= set(cut.axes) <= mapped | single
            if fits and self.atoms.resolve(cut.tile) == self.atoms.resolve(run):
                return cut.counts
        return tuple(counts[axis] for axis in sorted(mapped))


def _axis_map(node: OpNode, shapes: tuple[Shape, ...]) -> AxisMap:
    rule = node.spec.axes
    key = (rule, node.attributes, shapes)
    found = _AXIS_MAPS.get(key)
    if found is None:
        found = rule(shapes, node.attribute_map)
        if len(_AXIS_MAPS) < MOST_AXIS_MAPS:
            _AXIS_MAPS[key] = found
    return found


class _Sources:
    """Turns the sources of one operator's results into runs."""

    def __init__(self, atoms: Atoms, operands: list[Dims]) -> None:
        self.atoms, self.operands = atoms, operands
        self._factors: dict[tuple[Dim, ...], list[Run]] = {}
        self._pieces: dict[Dim, list[tuple[int, Run]]] = {}
        self._mentioned: list[list[bool]] = [[False] * len(dims) for dims in operands]

    def of(self, dim: Dim) -> Run:
        self._mentioned[dim.operand][dim.axis] = True
        return self.operands[dim.operand][dim.axis]

    def run(self, source: DimSource, extent: int, node: OpNode) -> Run:
        """Return the run of a result dimension of an operator."""
        match source:
            case Same(dims=()):
                return (self.atoms.fresh(extent, AtomKind.AXIS),) if extent > 1 else ()
            case Same(dims=dims):
                return self.shared([self.of(dim) for dim in dims])
            case Product(dims=dims):
                return tuple(atom for dim in dims for atom in self.of(dim))
            case Factor(dim=dim, position=position, extents=extents):
                return self.factors(dim, extents)[position]
            case Concatenated(dims=dims):
                return self.atoms.join(tuple(self.of(dim) for dim in dims))
            case Piece(dim=dim, start=start):
                return self.piece(dim, start, node.attribute_map.get("parts"))
            case Regrouped(dims=dims, position=position, extents=extents):
                return self.regrouped(dims, extents)[position]
            case _:
                assert_never(source)

    def shared(self, runs: list[Run]) -> Run:
        """Return the one dimension that several operand dimensions are; a unit beside a tile of one is stretched."""
        if len(runs) == 1 or runs.count(runs[0]) == len(runs):
            return runs[0]
        proper = [run for run in runs if not self.atoms.is_unit(run)] or runs
        for run in runs:
            if run in proper:
                self.atoms.same(proper[0], run)
            else:
                self.atoms.fix(run)
        return proper[0]

    def factors(self, dim: Dim, extents: Shape) -> list[Run]:
        return self.regrouped((dim,), extents)

    def regrouped(self, dims: tuple[Dim, ...], extents: Shape) -> list[Run]:
        if dims not in self._factors:
            whole = tuple(atom for dim in dims for atom in self.of(dim))
            made: list[Run] = [(self.atoms.fresh(e, AtomKind.FACTOR),) if e > 1 else () for e in extents]
            outermost = self.atoms.normal(whole)[:1]
            if extents[0] == 1 and outermost and self._is_one_block(outermost[0]):
                made[0] = (self.atoms.fresh(1, AtomKind.FACTOR),)  # the block may become several
            self.atoms.same(whole, tuple(atom for run in made for atom in run))
            self._factors[dims] = made
        return self._factors[dims]

    def _is_one_block(self, atom: int) -> bool:
        return self.atoms.extents[atom] == 1 and self.atoms.has_kind(atom, AtomKind.GRID)

    def piece(self, dim: Dim, start: int, parts: object) -> Run:
        """Return a piece: one of equal parts is an inner factor, others are parts of a concatenation."""
        if dim not in self._pieces:
            whole = self.of(dim)
            extent = self.atoms.extent(whole)
            if isinstance(parts, tuple):
                runs: list[Run] = [(self.atoms.fresh(part, AtomKind.AXIS),) for part in parts]
                self.atoms.same(whole, self.atoms.join(tuple(runs)))
                starts = [sum(parts[:number]) for number in range(len(parts))]
            else:
                assert isinstance(parts, int)
                count = self.atoms.fresh(parts, AtomKind.FIXED)
                self.atoms.fix((count,))
                inner = (self.atoms.fresh(extent // parts, AtomKind.FACTOR),)
                self.atoms.same(whole, (count, *inner))
                runs, starts = [inner] * parts, [number * (extent // parts) for number in range(parts)]
            self._pieces[dim] = list(zip(starts, runs, strict=True))
        return next(run for at, run in self._pieces[dim] if at == start)

    def reduced(self, member: Dim | Factor) -> Run:
        return self.of(member) if isinstance(member, Dim) else self.factors(member.dim, member.extents)[member.position]

    def fix_stretched(self) -> None:
        """Let operand dimensions of extent 1 that reach no result stay 1: they were stretched or dropped."""
        for dims, mentioned in zip(self.operands, self._mentioned, strict=True):
            if not all(mentioned):
                for run, is_mentioned in zip(dims, mentioned, strict=True):
                    if not is_mentioned:
                        self.atoms.fix(run)
