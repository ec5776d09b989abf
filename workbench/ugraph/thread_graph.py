"""Thread graphs: trees of elementwise operators whose values stay in registers.

Invariant: every node has one consumer inside the graph, except the root, and no node but a leaf contraction or a
reduction-free operator stands in it. The paper's general thread graph (own iterators) is not needed: thread graphs are
built by rule after the search (paper, section 4.1), from chains that need nothing but registers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from workbench.core.tensors import RegisterTensor
from workbench.errors import DuplicateNameError, ResultMismatchError, ThreadGraphError, UnknownTensorError
from workbench.ops.spec import OpKind
from workbench.ugraph.nodes import OpNode


@dataclass(frozen=True)
class ThreadGraph:
    """A tree of operators over register values.

    Attributes: inputs: one register tensor per operand of the thread node (a tile read from shared memory, or the
    operand of a leaf contraction); nodes: operators in order, elementwise but for at most one matmul all of whose
    operands are inputs (its accumulators stay in registers and the tree is its epilogue); output: name of the root.

    Raises: ThreadGraphError, UnknownTensorError, DuplicateNameError, ResultMismatchError.
    """

    inputs: tuple[RegisterTensor, ...]
    nodes: tuple[OpNode, ...]
    output: str

    def __post_init__(self) -> None:
        shapes: dict[str, tuple[int, ...]] = {}
        names = {tensor.name for tensor in self.inputs}
        for tensor in self.inputs:
            if tensor.name in shapes:
                raise DuplicateNameError(f"{tensor.name!r} names two values", tensor.name, "rename one")
            shapes[tensor.name] = tensor.shape
        contractions = 0
        for node in self.nodes:
            spec, where = node.spec, ", ".join(result.name for result in node.results) or node.op
            if spec.kind is OpKind.CONTRACTION:
                contractions += 1
                if not set(node.operands) <= names:
                    raise ThreadGraphError("a contraction is not a leaf of the tree", where, "start a new node")
            elif spec.kind not in (OpKind.ELEMENTWISE, OpKind.CONSTANT):
                raise ThreadGraphError(
                    f"{node.op} is a {spec.kind.value}, which needs other threads' elements",
                    where,
                    "leave it in the block graph",
                )
            for operand in node.operands:
                if operand not in shapes:
                    raise UnknownTensorError(f"operand {operand!r} is not defined before", where, "reorder")
            inferred = spec.infer_shapes(tuple(shapes[name] for name in node.operands), node.attribute_map)
            if len(node.results) != len(inferred):
                raise ResultMismatchError(
                    f"{len(node.results)} recorded results, {node.op} yields {len(inferred)}",
                    where,
                    "record each, once",
                )
            for result, shape in zip(node.results, inferred, strict=True):
                if result.shape != shape:
                    raise ResultMismatchError(
                        f"recorded shape {result.shape}, {node.op} yields {shape}",
                        result.name,
                        "build thread graphs with ThreadBuilder, which infers shapes",
                    )
                if result.name in shapes:
                    raise DuplicateNameError(f"{result.name!r} names two values", result.name, "rename one")
                shapes[result.name] = result.shape
        if contractions > 1:
            raise ThreadGraphError(
                f"{contractions} contractions in one thread graph", self.output, "keep one as the leaf"
            )
        if self.output not in shapes:
            raise UnknownTensorError(
                f"output {self.output!r} is not defined", self.output, f"values: {', '.join(shapes)}"
            )
        if not self.nodes:
            raise ThreadGraphError("it computes nothing", self.output, "use the tile itself")
        uses = Counter(name for node in self.nodes for name in set(node.operands))
        for node in self.nodes:
            for result in node.results:
                if uses[result.name] != (0 if result.name == self.output else 1):
                    raise ThreadGraphError(
                        f"value {result.name} has {uses[result.name]} consumers; the graph must be a tree",
                        result.name,
                        "give a value with several consumers a tile of its own",
                    )

    def tensor(self, name: str) -> RegisterTensor:
        """Return the register tensor of this name. Raises: UnknownTensorError."""
        for tensor in self.inputs:
            if tensor.name == name:
                return tensor
        for node in self.nodes:
            for result in node.results:
                if result.name == name and isinstance(result, RegisterTensor):
                    return result
        known = [tensor.name for tensor in self.inputs] + [t.name for node in self.nodes for t in node.results]
        raise UnknownTensorError(f"no value {name!r} in the thread graph", name, f"values: {', '.join(known)}")
