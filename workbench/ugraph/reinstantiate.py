"""The same µGraph with other extents and counts, and small instances of a program and a candidate for verification.

Invariant: what operators, maps and cuts tie stays tied; counts that multiply into dimensions, targets of reshapes,
columns, parts and the 1/n of means follow; what cannot follow is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

import numpy as np

from workbench.core.tensors import DeviceTensor
from workbench.errors import NotApplicableError, UnknownNameError, WorkbenchError
from workbench.ops.spec import AttributeValue
from workbench.ugraph.atoms import AtomKind, Atoms, Run
from workbench.ugraph.axes import Names, analyze_axes
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.counts import CountPower, constant_value, recognize_counts
from workbench.ugraph.dataflow import Dataflow, Path, flatten
from workbench.ugraph.dimensions import SIZE_ATTRIBUTES, Dimensions
from workbench.ugraph.extent_solver import Constraint, CutInto, Product, Square, Values, constraints_of, solve
from workbench.ugraph.inference import GRID_AXES
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import Accumulator, OpNode
from workbench.ugraph.rewrite import Launch, Rewriter, dense_strides
from workbench.ugraph.scalars import ONE, scalar

SMALL_COUNTS = (2, 3)
SMALL_EXTENTS = (2, 3, 5, 7, 11, 13, 4, 6, 8, 9, 10, 12, 16, 18, 20, 24, 27)
LARGEST_SMALL = 256


def reinstantiate(
    graph: KernelGraph,
    sizes: Mapping[str, int] | None = None,
    counts: Mapping[str, int] | None = None,
    *,
    names: Names | None = None,
) -> KernelGraph:
    """Return the same graph with other extents of axes and other counts.

    sizes: extents by the names of `analyze_axes(graph, names)`; counts: `x`, `y`, `z`, `loop` of the only graph-defined
    operator, or with its number in front, as `0.x`, `1.loop`. What is not named keeps its value if it can and follows if
    it is tied; a count need not divide what it cuts.
    Raises: UnknownNameError; NotApplicableError when nothing meets the request: an extent of 1 that is broadcast, a
    fixed number of pieces, a constant whose count has no rational root, tiles that end early where they must not.
    """
    flow = flatten(graph)
    dimensions = Dimensions(flow, Atoms())
    dimensions.derive()
    wanted = [*_sizes_wanted(dimensions, sizes or {}, names), *_counts_wanted(dimensions, counts or {})]
    values = _kept_values(dimensions.atoms, wanted)
    if values is None:
        asked = ", ".join(f"{name}={value}" for name, value in {**(sizes or {}), **(counts or {})}.items())
        raise NotApplicableError(
            f"no instance of {graph.name or 'the graph'} has {asked}: ties or fixed extents forbid it"
        )
    powers = recognize_counts(dimensions, roots=False)
    return _Instance(dimensions, values, _new_constants([(dimensions, powers)], values)[0]).rewrite(graph)


def joint_reduction(
    program: KernelGraph, candidate: KernelGraph, rng: np.random.Generator, *, ragged: bool = False
) -> tuple[KernelGraph, KernelGraph]:
    """Return a program and a candidate with small extents and counts, inputs and outputs of equal shapes in both.

    Counts above 1 become 2 or 3, other extents above 1 become small, different primes where ties allow; 1 stays 1.
    ragged: extents are then made one smaller wherever both graphs stay legal, so that counts no longer divide them.
    Raises: NotApplicableError when inputs or outputs differ in shape, when nothing small meets the ties, and, with
    `ragged`, when no axis may end early.
    """
    graphs = (program, candidate)
    _check_interfaces(program, candidate)
    atoms = Atoms()
    parts = []
    for graph in graphs:
        dimensions = Dimensions(flatten(graph), atoms)
        dimensions.derive()
        parts.append(dimensions)
    first, second = parts
    for left, right in zip(_interface(first), _interface(second), strict=True):
        for run, other in zip(first.values[left], second.values[right], strict=True):
            atoms.same(run, other)
    atoms.settle()
    powers = [(dimensions, recognize_counts(dimensions, roots=False)) for dimensions in parts]
    values = _small_values(atoms, powers, rng)

    def build(chosen: dict[int, int]) -> tuple[KernelGraph, KernelGraph]:
        constants = _new_constants(powers, chosen)
        small = [
            _Instance(dimensions, chosen, new).rewrite(graph)
            for dimensions, new, graph in zip(parts, constants, graphs, strict=True)
        ]
        _check_interfaces(*small)
        return small[0], small[1]

    even = build(values)
    if not ragged:
        return even
    return _made_ragged(atoms, values, build, rng)


def reduction(graph: KernelGraph, rng: np.random.Generator, *, ragged: bool = False) -> KernelGraph:
    """Return one graph with small extents and counts. Raises: as `joint_reduction`."""
    return joint_reduction(graph, graph, rng, ragged=ragged)[0]


# ------------------------------------------------------------------------------------------------------- the interface
def _interface(dimensions: Dimensions) -> list[int]:
    inputs = range(len(dimensions.flow.graph.inputs))
    return [*inputs, *dimensions.flow.outputs]


def _check_interfaces(program: KernelGraph, candidate: KernelGraph) -> None:
    for what, left, right in (
        ("inputs", program.inputs, candidate.inputs),
        ("outputs", program.outputs, candidate.outputs),
    ):
        shapes, others = [tensor.shape for tensor in left], [tensor.shape for tensor in right]
        if shapes != others:
            raise NotApplicableError(f"{what} of the program have shapes {shapes}, of the candidate {others}")


# ------------------------------------------------------------------------------------------------------ what is asked for
def _sizes_wanted(dimensions: Dimensions, sizes: Mapping[str, int], names: Names | None) -> list[Product]:
    """Return the atoms and new product of each named axis."""
    if not sizes:
        return []
    analysis = analyze_axes(dimensions.flow.graph, names)
    wanted = []
    for name, size in sizes.items():
        axis = analysis.axis(name)
        run = next(
            (
                found
                for value, path in enumerate(dimensions.flow.paths)
                for dim, axes in enumerate(analysis.tensors[path])
                if name in axes
                for inner in [prod(analysis.axes[other].extent for other in axes[axes.index(name) + 1 :])]
                for found in [_slice(dimensions.atoms, dimensions.values[value][dim], inner, axis.extent)]
                if found is not None
            ),
            None,
        )
        if run is None:
            raise NotApplicableError(f"axis {name} is tied to a part of another axis; name the whole instead")
        wanted.append(Product(run, _positive(name, size)))
    return wanted


def _slice(atoms: Atoms, run: Run, inner: int, extent: int) -> Run | None:
    """Return the atoms of a dimension that have `extent` elements, `inner` elements inside them."""
    rest = list(atoms.normal(run))
    below = 1
    while below < inner and rest:
        below *= atoms.extents[rest.pop()]
    found: list[int] = []
    while atoms.extent(found) < extent and rest:
        found.insert(0, rest.pop())
    if extent == 1 and rest and atoms.extents[rest[-1]] == 1:
        found = [rest[-1]]
    return tuple(found) if found and below == inner and atoms.extent(found) == extent else None


def _counts_wanted(dimensions: Dimensions, counts: Mapping[str, int]) -> list[Product]:
    launches = len(dimensions.flow.launches)
    wanted = []
    for key, count in counts.items():
        number, _, which = key.rpartition(".")
        launch = int(number) if number.isdecimal() else 0
        known = which in (*GRID_AXES, "loop") and (number.isdecimal() or (number == "" and launches == 1))
        if not known or launch >= launches:
            raise UnknownNameError(
                f"no count {key!r}; the graph has {launches} graph-defined operators: give x, y, z or loop"
                + (", the operator's number in front (0.x)" if launches > 1 else "")
            )
        atom = dimensions.loop[launch] if which == "loop" else dimensions.grid[launch][GRID_AXES.index(which)]
        wanted.append(Product(dimensions.atoms.resolve((atom,)), _positive(key, count)))
    return wanted


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise NotApplicableError(f"{name}={value}: an extent or count is at least 1")
    return value


# ------------------------------------------------------------------------------------------------------- finding values
def _order(atoms: Atoms) -> list[int]:
    """Return the atoms in the order in which they are chosen: counts, whole axes, what is left."""

    def rank(atom: int) -> int:
        if atoms.has_kind(atom, AtomKind.GRID) or atoms.has_kind(atom, AtomKind.LOOP):
            return 0
        return 1 if atoms.has_kind(atom, AtomKind.AXIS) else 2

    return sorted(atoms.roots(), key=rank)


def _kept_values(atoms: Atoms, wanted: Sequence[Product]) -> dict[int, int] | None:
    """Return values that meet the request and otherwise stay as they are where they can."""
    constraints: list[Constraint] = [*wanted, *constraints_of(atoms, even=False)]
    asked = {atom for product in wanted for atom in product.run}
    fixed = {atom for atom in atoms.roots() if atoms.is_fixed(atom)}
    order = sorted(_order(atoms), key=lambda atom: (atom not in fixed, atom not in asked))

    def preferred(atom: int, values: Values) -> Sequence[int]:
        """Return the old value, then what would close a constraint, then the divisors of a product it belongs to."""
        found = [atoms.extents[atom]]
        for constraint in constraints:
            if atom not in constraint.variables:
                continue
            if isinstance(constraint, Product):
                found += [d for d in range(1, constraint.value + 1) if constraint.value % d == 0]
            even = replace(constraint, even=True) if isinstance(constraint, CutInto) else constraint
            if all(other in values for other in constraint.variables if other != atom):
                found += even.values_of(atom, values) or ()
        return list(dict.fromkeys(found))

    def allowed(atom: int, value: int) -> bool:
        return value == atoms.extents[atom] if atom in fixed else value >= 1

    return solve(order, constraints, preferred, allowed)


_Recognised = Sequence[tuple[Dimensions, Mapping[int, CountPower]]]


def _small_values(atoms: Atoms, powers: _Recognised, rng: np.random.Generator) -> dict[int, int]:
    """Return small values for all atoms. Raises: NotApplicableError when none meet the ties."""
    constraints = constraints_of(atoms, even=True)
    for _, recognised in powers:
        for power in recognised.values():
            rooted = [span for span in power.spans if span.exponent.denominator == 2]
            constraints += [Square(atoms.normal(span.run)) for span in rooted]
    whole = {atom for constraint in constraints if isinstance(constraint, CutInto) for atom in constraint.base}
    fixed = {atom for atom in atoms.roots() if atoms.is_fixed(atom) or atoms.extents[atom] == 1}
    order = sorted(_order(atoms), key=lambda atom: (atom not in fixed, not _is_count(atoms, atom), atom in whole))
    counts = [int(value) for value in rng.permutation(SMALL_COUNTS)]
    primes = [int(value) for value in rng.permutation(SMALL_EXTENTS[:4])]

    def preferred(atom: int, values: Values) -> Sequence[int]:
        if atom in fixed:
            return [atoms.extents[atom]]
        if _is_count(atoms, atom):
            turned = counts[len(values) % 2 :] + counts[: len(values) % 2]
            return [*turned, *(extent for extent in SMALL_EXTENTS if extent not in turned)]
        used = {value for other, value in values.items() if not _is_count(atoms, other)}
        choices = [*primes, *SMALL_EXTENTS[4:]]
        return [*(value for value in choices if value not in used), *(value for value in choices if value in used)]

    def allowed(atom: int, value: int) -> bool:
        old = atoms.extents[atom]
        return value == old if atom in fixed else 1 < value <= LARGEST_SMALL

    values = solve(order, constraints, preferred, allowed)
    if values is None:
        raise NotApplicableError("no small extents meet what ties the extents and counts of the two graphs")
    return values


def _is_count(atoms: Atoms, atom: int) -> bool:
    return atoms.has_kind(atom, AtomKind.GRID) or atoms.has_kind(atom, AtomKind.LOOP)


Build = Callable[[dict[int, int]], tuple[KernelGraph, KernelGraph]]


def _made_ragged(
    atoms: Atoms, values: dict[int, int], build: Build, rng: np.random.Generator
) -> tuple[KernelGraph, KernelGraph]:
    """Return the graphs with as many axes as possible one element shorter. Raises: NotApplicableError when none may be."""
    constraints = constraints_of(atoms, even=False)
    axes = {
        cut.base[0]: None
        for cut in constraints
        if isinstance(cut, CutInto) and len(cut.base) == 1 and _cuts_something(cut, values)
    }
    made: tuple[KernelGraph, KernelGraph] | None = None
    for axis in rng.permutation(list(axes)) if axes else ():
        shorter = {**values, int(axis): values[int(axis)] - 1}
        if not all(constraint.holds(shorter) for constraint in constraints):
            continue
        try:
            made = build(shorter)
        except NotApplicableError:
            continue
        values = shorter
    if made is None:
        raise NotApplicableError("no axis that is cut may end early in both graphs")
    return made


def _cuts_something(cut: CutInto, values: Values) -> bool:
    """Return True when a dimension is cut into several tiles of several elements."""
    tile = prod(values[atom] for atom in cut.tile)
    return tile > 1 and values[cut.base[0]] > tile


# ------------------------------------------------------------------------------------------------------------ constants
def _new_constants(powers: _Recognised, values: Values) -> list[dict[int, Fraction]]:
    """Return, per graph, the new number of each `scale` and `constant` step that holds a count.

    A constant that equals one that was recognised is taken for the same count, wherever it stands, so that the graphs
    are changed alike. Raises: NotApplicableError when a root is not rational.
    """
    by_value: dict[Fraction, Fraction] = {}
    found: list[dict[int, Fraction]] = []
    for dimensions, recognised in powers:
        found.append({})
        for number, power in recognised.items():
            old = constant_value(dimensions.flow, number)
            new = _power_value(dimensions.atoms, power, values)
            found[-1][number] = new if old > 0 else -new
            by_value.setdefault(abs(old), new)
    for (dimensions, _), numbers in zip(powers, found, strict=True):
        for number, step in enumerate(dimensions.flow.steps):
            if isinstance(step.node, OpNode) and step.node.op in ("scale", "constant") and number not in numbers:
                old = constant_value(dimensions.flow, number)
                if abs(old) in by_value:
                    numbers[number] = by_value[abs(old)] if old > 0 else -by_value[abs(old)]
    return found


def _power_value(atoms: Atoms, power: CountPower, values: Values) -> Fraction:
    product = ONE
    for span in power.spans:
        count = prod(values[atom] for atom in atoms.normal(span.run))
        product *= scalar(Fraction(count)).power(span.exponent)
    if product.root != 1:
        raise NotApplicableError(f"a constant is the root of a count, and {product} is not rational")
    return product.radicand


# ------------------------------------------------------------------------------------------------------------ rebuilding
@dataclass
class _Instance(Rewriter):
    """Rebuilds a graph with new values for its atoms.

    Attributes: dimensions; values_of: per atom; constants: new numbers by step.
    """

    dimensions: Dimensions
    values_of: Values
    constants: Mapping[int, Fraction]

    def __post_init__(self) -> None:
        self.flow: Dataflow = self.dimensions.flow
        self.steps = {step.path: number for number, step in enumerate(self.flow.steps)}
        self.positions = {path: value for value, path in enumerate(self.flow.paths)}

    def rewrite(self, graph: KernelGraph) -> KernelGraph:
        """Return the instance. Raises: NotApplicableError when it is not legal."""
        try:
            return super().rewrite(graph)
        except NotApplicableError:
            raise
        except WorkbenchError as error:
            raise NotApplicableError(f"with these extents and counts the graph is not legal: {error}") from error

    def extents(self, path: Path) -> tuple[int, ...]:
        """Return the new shape of a value."""
        dims = self.dimensions.values[self.positions[path]]
        return tuple(self.extent(run) for run in dims)

    def extent(self, run: Run) -> int:
        """Return the new extent of a dimension."""
        return prod(self.values_of[atom] for atom in self.dimensions.atoms.normal(run))

    def input(self, tensor: DeviceTensor) -> DeviceTensor:
        shape = self.extents((tensor.name,))
        return replace(tensor, shape=shape, strides=dense_strides(tensor.shape, tensor.strides, shape))

    def launch(self, number: int, block: BlockGraph) -> Launch:
        grid = tuple(self.extent((atom,)) for atom in self.dimensions.grid[number])
        loop = self.extent((self.dimensions.loop[number],))
        cluster = block.cluster_dims if prod(block.cluster_dims) <= loop else (loop, 1, 1)
        return Launch(grid, loop, block.block_dims, cluster)

    def attributes(self, node: OpNode, path: Path) -> dict[str, AttributeValue]:
        number = self.steps[path]
        attributes = node.attribute_map
        if number in self.constants:
            attributes["factor" if node.op == "scale" else "value"] = self.constants[number]
        for name, value in node.attributes:
            if (node.op, name) in SIZE_ATTRIBUTES:
                attributes[name] = self._size_attribute(node, name, value, number)
        return attributes

    def _size_attribute(self, node: OpNode, name: str, value: AttributeValue, number: int) -> AttributeValue:
        results = [self.extents(self.flow.paths[result]) for result in self.flow.steps[number].results]
        if name == "shape":
            return results[0]
        if name == "columns":
            return results[0][-1]
        if isinstance(value, int):  # a number of equal parts
            return value
        axis = node.attribute_map["axis"]
        assert isinstance(axis, int)
        return tuple(shape[axis] for shape in results)

    def columns(self, node: Accumulator, path: Path) -> int | None:
        return None if node.columns is None else self.extents(path)[-1]
