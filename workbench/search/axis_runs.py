"""Which factors of a product axis always run together, so that the search may take the product as one axis.

X @ W with 32 columns, reshaped to 4 heads of 8: as long as nothing folds a head or has one factor without the other, the
columns are one axis, and the reshape happens in device memory. Invariant: a run is taken as one only if every input, every
output and every fold has all of it in order, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from workbench.ops.spec import Dim
from workbench.ugraph.axes import AxisAnalysis
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import OpNode

DimNames = tuple[str, ...]  # the axes of one dimension, outermost first; none for a dimension that is broadcast
Runs = Mapping[str, tuple[tuple[str, ...], str]]  # by the first factor: all factors, and the name of their product
_TakeApart = Callable[[Iterable[Sequence[str]]], tuple[DimNames, ...]]


def runs_of(program: KernelGraph, analysis: AxisAnalysis, take_apart: _TakeApart) -> Runs:
    """Return the products that are one axis. take_apart: names of dimensions, products replaced by their factors."""
    copies = {name for name, axis in analysis.axes.items() if axis.copy_of}
    copies |= {axis.copy_of for axis in analysis.axes.values() if axis.copy_of}
    sequences = [
        [name for dim in take_apart(analysis.dims(tensor.name)) for name in dim]
        for tensor in (*program.inputs, *program.outputs)
    ]
    sequences += _folded(program, analysis, take_apart)
    found: dict[str, tuple[tuple[str, ...], str]] = {}
    taken: set[str] = set()
    for factors, name in _products(analysis, take_apart):
        if not (copies | taken) & {name, *factors} and all(_is_whole(s, factors) for s in sequences):
            found[factors[0]] = (factors, name)
            taken.update(factors)
    return found


def _products(analysis: AxisAnalysis, take_apart: _TakeApart) -> list[tuple[tuple[str, ...], str]]:
    """Return factors and name of every product, the longest first: axes that are taken apart, dimensions of several axes."""
    found: dict[tuple[str, ...], str] = {}
    for name in analysis.axes:
        (factors,) = take_apart([[name]])
        found.setdefault(factors, name)
    for path, dims in analysis.tensors.items():
        if len(path) == 1:
            for factors in take_apart(dims):
                found.setdefault(factors, "*".join(factors))
    products = [(factors, name) for factors, name in found.items() if len(factors) > 1]
    return sorted(products, key=lambda product: -len(product[0]))


def _folded(program: KernelGraph, analysis: AxisAnalysis, take_apart: _TakeApart) -> Iterator[list[str]]:
    """Yield the factors that each operator folds at once."""
    for node in program.nodes:
        assert isinstance(node, OpNode)
        shapes = tuple(program.tensor(name).shape for name in node.operands)
        for group in node.spec.axes(shapes, node.attribute_map).reduced:
            member = group[0]
            dim = member if isinstance(member, Dim) else member.dim
            seen = analysis.operands[(node.results[0].name,), dim.operand]
            (names,) = take_apart([seen[dim.axis]])
            yield list(names) if isinstance(member, Dim) else list(names[member.position : member.position + 1])


def _is_whole(names: Sequence[str], factors: tuple[str, ...]) -> bool:
    """Return whether all factors stand in order in a sequence, or none is there."""
    present = [place for place, name in enumerate(names) if name in factors]
    if not present:
        return True
    return tuple(names[present[0] : present[0] + len(factors)]) == factors and len(present) == len(factors)


def joined(dims: Sequence[DimNames], runs: Runs) -> tuple[DimNames, ...]:
    """Return dimensions in which a run is one axis, at the place of its first factor; dimensions left empty are gone."""
    result: list[DimNames] = []
    inner = {factor for factors, _ in runs.values() for factor in factors[1:]}
    for dim in dims:
        names = tuple(runs[name][1] if name in runs else name for name in dim if name not in inner)
        if names or not dim:
            result.append(names)
    return tuple(result)
