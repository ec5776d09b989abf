"""The same µGraph with other extents and counts, and small instances of a program and a candidate for verification.

Invariant: what operators, maps and cuts tie stays tied; counts that multiply into dimensions, targets of reshapes,
columns, parts and the 1/n of means follow; what cannot follow is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from workbench.errors import NotApplicableError, UnknownNameError
from workbench.ugraph.atoms import AtomKind, Atoms, Run
from workbench.ugraph.axes import Names, analyze_axes
from workbench.ugraph.counts import recognize_counts
from workbench.ugraph.dataflow import flatten
from workbench.ugraph.dimensions import Dimensions
from workbench.ugraph.extent_solver import Constraint, CutInto, Evenness, Product, Square, Values, constraints_of, solve
from workbench.ugraph.inference import GRID_AXES
from workbench.ugraph.instance import Instance, Recognised, new_constants
from workbench.ugraph.kernel_graph import KernelGraph

SMALL_COUNTS = (2, 3)
SMALL_EXTENTS = (2, 3, 5, 7, 11, 13, 4, 6, 8, 9, 10, 12, 16, 18, 20, 24, 27)
LARGEST_SMALL = 256
ATTEMPTS = 4


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
    return Instance(dimensions, values, new_constants([(dimensions, powers)], values)[0]).rewrite(graph)


def joint_reduction(
    program: KernelGraph,
    candidate: KernelGraph,
    rng: np.random.Generator,
    *,
    ragged: bool = False,
    smallest: bool = False,
) -> tuple[KernelGraph, KernelGraph]:
    """Return a program and a candidate with small extents and counts, inputs and outputs of equal shapes in both.

    Counts above 1 become 2 or 3, other extents above 1 become small, different primes where ties allow; 1 stays 1. If
    both graphs launch the same grids and loops, they still do.
    ragged: extents are then made one smaller wherever both graphs stay legal, so that counts no longer divide them.
    smallest: extents and counts are the least that ties allow, equal ones too: for what is exponential in the sizes.
    Raises: NotApplicableError when inputs or outputs differ in shape, when nothing small meets the ties, and, with
    `ragged`, when no axis may end early.
    """
    _check_interfaces((program, candidate))
    small = _reduced((program, candidate), rng, ragged=ragged, smallest=smallest)
    return small[0], small[1]


def reduction(graph: KernelGraph, rng: np.random.Generator, *, ragged: bool = False) -> KernelGraph:
    """Return one graph with small extents and counts. Raises: NotApplicableError, as `joint_reduction`."""
    return _reduced((graph,), rng, ragged=ragged)[0]


def _reduced(
    graphs: Sequence[KernelGraph], rng: np.random.Generator, *, ragged: bool, smallest: bool = False
) -> list[KernelGraph]:
    """Return graphs with the same inputs and outputs as small instances that have the same inputs and outputs."""
    atoms = Atoms()
    parts = []
    for graph in graphs:
        dimensions = Dimensions(flatten(graph), atoms)
        dimensions.derive()
        parts.append(dimensions)
    for dimensions in parts[1:]:
        for left, right in zip(_interface(parts[0]), _interface(dimensions), strict=True):
            for run, other in zip(parts[0].values[left], dimensions.values[right], strict=True):
                atoms.same(run, other)
        _tie_launches(parts[0], dimensions)
    atoms.settle()
    powers = [(dimensions, recognize_counts(dimensions, roots=False)) for dimensions in parts]
    values = _small_values(atoms, powers, rng, smallest=smallest)

    def build(chosen: dict[int, int]) -> list[KernelGraph]:
        constants = new_constants(powers, chosen)
        small = [
            Instance(dimensions, chosen, new).rewrite(graph)
            for dimensions, new, graph in zip(parts, constants, graphs, strict=True)
        ]
        _check_interfaces(small)
        return small

    even = build(values)
    return _made_ragged(atoms, values, build, rng) if ragged else even


# ------------------------------------------------------------------------------------------------------- the interface
def _interface(dimensions: Dimensions) -> list[int]:
    inputs = range(len(dimensions.flow.graph.inputs))
    return [*inputs, *dimensions.flow.outputs]


def _tie_launches(program: Dimensions, candidate: Dimensions) -> None:
    """Tie the counts of two graphs that launch the same grids and loops, as before and after a rewriting of blocks.

    What a block computes may depend on its counts (the root of a part of a sum); then only equal counts compare.
    """
    counts = [
        [(node.block.grid_dims, node.block.forloop_range) for node in dimensions.flow.launches]
        for dimensions in (program, candidate)
    ]
    if counts[0] == counts[1]:
        for number in range(len(counts[0])):
            mine, other = ((*side.grid[number], side.loop[number]) for side in (program, candidate))
            for atom, tied in zip(mine, other, strict=True):
                program.atoms.same((atom,), (tied,))


def _check_interfaces(graphs: Sequence[KernelGraph]) -> None:
    program = graphs[0]
    for candidate in graphs[1:]:
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
    constraints: list[Constraint] = [*wanted, *constraints_of(atoms, Evenness.NONE)]
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


def _small_values(atoms: Atoms, powers: Recognised, rng: np.random.Generator, *, smallest: bool) -> dict[int, int]:
    """Return small values for all atoms, of some attempts the one with the most different extents of whole dimensions.

    Raises: NotApplicableError when none meet the ties.
    """
    best: tuple[int, dict[int, int]] | None = None
    evenness = Evenness.ALL
    for _ in range(ATTEMPTS):
        values = _attempt(atoms, powers, rng, evenness, smallest=smallest)
        if values is None:
            if evenness is Evenness.THOSE_THAT_DO:
                break
            evenness = Evenness.THOSE_THAT_DO
            continue
        extents = [values[a] for a in values if atoms.extents[a] > 1 and atoms.has_kind(a, AtomKind.AXIS)]
        repeated = len(extents) - len(set(extents))
        if best is None or repeated < best[0]:
            best = (repeated, values)
        if not repeated or smallest:
            break
    if best is None:
        raise NotApplicableError("no small extents meet what ties the extents and counts of the two graphs")
    return best[1]


def _attempt(
    atoms: Atoms, powers: Recognised, rng: np.random.Generator, evenness: Evenness, *, smallest: bool
) -> dict[int, int] | None:
    constraints = constraints_of(atoms, evenness)
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
        if smallest:
            return [*sorted(SMALL_EXTENTS), atoms.extents[atom]]
        if _is_count(atoms, atom):
            turned = counts[len(values) % 2 :] + counts[: len(values) % 2]
            return [*turned, *(extent for extent in SMALL_EXTENTS if extent not in turned), atoms.extents[atom]]
        used = {value for other, value in values.items() if not _is_count(atoms, other)}
        choices = [*primes, *SMALL_EXTENTS[4:], atoms.extents[atom]]
        return [*(value for value in choices if value not in used), *(value for value in choices if value in used)]

    def allowed(atom: int, value: int) -> bool:
        old = atoms.extents[atom]
        return value == old if atom in fixed else 1 < value <= LARGEST_SMALL

    return solve(order, constraints, preferred, allowed)


def _is_count(atoms: Atoms, atom: int) -> bool:
    return atoms.has_kind(atom, AtomKind.GRID) or atoms.has_kind(atom, AtomKind.LOOP)


Build = Callable[[dict[int, int]], list[KernelGraph]]


def _made_ragged(atoms: Atoms, values: dict[int, int], build: Build, rng: np.random.Generator) -> list[KernelGraph]:
    """Return the graphs with as many axes as possible one element shorter. Raises: NotApplicableError when none may be."""
    constraints = constraints_of(atoms, Evenness.NONE)
    axes = {
        cut.base[0]: None
        for cut in constraints
        if isinstance(cut, CutInto) and len(cut.base) == 1 and _cuts_something(cut, values)
    }
    made: list[KernelGraph] | None = None
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
        raise NotApplicableError("no axis that is cut may end early")
    return made


def _cuts_something(cut: CutInto, values: Values) -> bool:
    """Return True when a dimension is cut into several tiles of several elements."""
    tile = prod(values[atom] for atom in cut.tile)
    return tile > 1 and values[cut.base[0]] > tile
