"""A µGraph rebuilt with new extents for its atoms: shapes, counts, extents in attributes, constants that are counts.

Invariant: nothing is chosen here; an instance is legal or refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

from workbench.core.tensors import DeviceTensor
from workbench.errors import NotApplicableError, WorkbenchError
from workbench.ops.spec import AttributeValue
from workbench.ugraph.atoms import Atoms, Run
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.counts import CountPower, constant_value
from workbench.ugraph.dataflow import Dataflow, Path
from workbench.ugraph.dimensions import SIZE_ATTRIBUTES, Dimensions
from workbench.ugraph.extent_solver import Values
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import Accumulator, OpNode
from workbench.ugraph.rewrite import Launch, Rewriter, dense_strides
from workbench.ugraph.scalars import ONE, scalar

Recognised = Sequence[tuple[Dimensions, Mapping[int, CountPower]]]
"""Per graph, its dimensions and which of its constants are counts."""


def new_constants(powers: Recognised, values: Values) -> list[dict[int, Fraction]]:
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


@dataclass
class Instance(Rewriter):
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
            made = super().rewrite(graph)
        except NotApplicableError:
            raise
        except WorkbenchError as error:
            raise NotApplicableError(f"with these extents and counts the graph is not legal: {error}") from error
        for name, tensor in made.tensors.items():
            expected = self.extents((name,))
            if tensor.shape != expected:
                raise NotApplicableError(
                    f"{name} would have shape {tensor.shape} where {expected} follows from the ties"
                )
        return made

    def extents(self, path: Path) -> tuple[int, ...]:
        """Return the new shape of a value."""
        dims = self.dimensions.values[self.positions[path]]
        return tuple(self.extent(run) for run in dims)

    def extent(self, run: Run) -> int:
        """Return the new extent of a dimension."""
        return prod(self.values_of[atom] for atom in self.dimensions.atoms.normal(run))

    def input(self, tensor: DeviceTensor) -> DeviceTensor:
        """Return the input with its new shape, its axes in the same order in memory."""
        shape = self.extents((tensor.name,))
        return replace(tensor, shape=shape, strides=dense_strides(tensor.shape, tensor.strides, shape))

    def launch(self, number: int, block: BlockGraph) -> Launch:
        """Return the new counts; a cluster is not larger than the loop that its blocks share."""
        grid = tuple(self.extent((atom,)) for atom in self.dimensions.grid[number])
        loop = self.extent((self.dimensions.loop[number],))
        cluster = block.cluster_dims if prod(block.cluster_dims) <= loop else (loop, 1, 1)
        return Launch(grid, loop, block.block_dims, cluster)

    def attributes(self, node: OpNode, path: Path) -> dict[str, AttributeValue]:
        """Return the attributes, extents and counts among them new."""
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
        """Return the new number of columns that an accumulator leaves."""
        return None if node.columns is None else self.extents(path)[-1]
