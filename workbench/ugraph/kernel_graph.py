"""Kernel graphs: a whole tensor program, its nodes kernels, its edges tensors in device memory (paper, section 2.1).

Invariant: a kernel graph that exists is legal; names are unique; nodes stand after what they read; outputs are ordered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import assert_never

from workbench.core.tensors import DeviceTensor
from workbench.display import Displayed
from workbench.errors import (
    DuplicateNameError,
    OperatorLevelError,
    ResultMismatchError,
    UnknownTensorError,
    UsageError,
    WorkbenchError,
)
from workbench.ugraph.nodes import GraphDefinedNode, KernelNode, OpNode
from workbench.units import counted


@dataclass(frozen=True)
class KernelGraph(Displayed):
    """A tensor program as a graph of kernels.

    Attributes: inputs: the program's inputs in order; nodes: predefined operators and graph-defined operators;
    output_names: names of the outputs, in an order that is part of the meaning; name: a label without meaning.

    Raises: LegalityError of the rule that is broken, ShapeError from an operator.
    """

    inputs: tuple[DeviceTensor, ...]
    nodes: tuple[KernelNode, ...]
    output_names: tuple[str, ...]
    name: str = ""

    def __post_init__(self) -> None:
        tensors: dict[str, DeviceTensor] = {}
        for tensor in self.inputs:
            self._define(tensors, tensor)
        for node in self.nodes:
            where = kernel_node_name(node)
            for operand in node.operands:
                if operand not in tensors:
                    raise UnknownTensorError(
                        f"operand {operand!r} is not defined before",
                        where,
                        "define it first; a cycle cannot be ordered",
                    )
            operands = tuple(tensors[name] for name in node.operands)
            try:
                self._check(node, operands, where)
            except WorkbenchError as error:
                error.add_note(f"in node {where} of kernel graph {self.name or '(unnamed)'}")
                raise
            for result in node.results:
                if not isinstance(result, DeviceTensor):
                    raise OperatorLevelError("a result of a kernel is a DeviceTensor", where, "make it one")
                self._define(tensors, result)
        for name in self.output_names:
            if name not in tensors:
                raise UnknownTensorError(f"output {name!r} is not defined", name, f"tensors: {', '.join(tensors)}")
        if not self.output_names:
            raise UnknownTensorError(
                "the program has no output", self.name or "kernel graph", "name at least one output"
            )

    @staticmethod
    def _define(tensors: dict[str, DeviceTensor], tensor: DeviceTensor) -> None:
        if tensor.name in tensors:
            raise DuplicateNameError(f"{tensor.name!r} names two tensors", tensor.name, "rename one")
        tensors[tensor.name] = tensor

    @staticmethod
    def _check(node: KernelNode, operands: tuple[DeviceTensor, ...], where: str) -> None:
        match node:
            case OpNode():
                if "kernel" not in node.spec.levels:
                    raise OperatorLevelError(
                        f"{node.op} cannot stand in a kernel graph",
                        where,
                        f"its levels: {', '.join(sorted(node.spec.levels))}",
                    )
                shapes = node.spec.infer_shapes(tuple(tensor.shape for tensor in operands), node.attribute_map)
            case GraphDefinedNode():
                expected = tuple((tensor.shape, tensor.dtype, tensor.strides) for tensor in node.block.operands)
                found = tuple((tensor.shape, tensor.dtype, tensor.strides) for tensor in operands)
                if expected != found:
                    raise ResultMismatchError(
                        f"the block graph reads {expected}, the operands are {found}",
                        where,
                        "build the block graph over these operands",
                    )
                shapes = node.block.result_shapes
            case _:
                assert_never(node)
        recorded = tuple(tensor.shape for tensor in node.results)
        if recorded != tuple(shapes):
            raise ResultMismatchError(
                f"recorded results {recorded}, the node yields {tuple(shapes)}",
                where,
                "build kernel graphs with KernelBuilder, which infers shapes",
            )

    # ------------------------------------------------------------------------------------------------- looking around
    @cached_property
    def tensors(self) -> dict[str, DeviceTensor]:
        """Every tensor by name: inputs, then results in order of definition."""
        found = {tensor.name: tensor for tensor in self.inputs}
        for node in self.nodes:
            for result in node.results:
                assert isinstance(result, DeviceTensor)
                found[result.name] = result
        return found

    @property
    def outputs(self) -> tuple[DeviceTensor, ...]:
        """The output tensors in order."""
        return tuple(self.tensors[name] for name in self.output_names)

    def tensor(self, name: str) -> DeviceTensor:
        """Return the tensor of this name. Raises: UnknownTensorError."""
        if name not in self.tensors:
            raise UnknownTensorError(f"no tensor {name!r}", name, f"tensors: {', '.join(self.tensors)}")
        return self.tensors[name]

    def producer(self, name: str) -> KernelNode | None:
        """Return the node that makes this tensor, None for an input. Raises: UnknownTensorError."""
        self.tensor(name)
        return next((node for node in self.nodes if any(tensor.name == name for tensor in node.results)), None)

    def consumers(self, name: str) -> Iterator[KernelNode]:
        """Yield the nodes that read this tensor, in order."""
        return (node for node in self.nodes if name in node.operands)

    @property
    def graph_defined(self) -> tuple[GraphDefinedNode, ...]:
        """The graph-defined kernel operators in order."""
        return tuple(node for node in self.nodes if isinstance(node, GraphDefinedNode))

    @cached_property
    def hash(self) -> str:
        """Hash of wiring, operators, attributes, shapes, types and schedule (see `hashes.wiring_hash`)."""
        from workbench.ugraph.hashes import wiring_hash

        return wiring_hash(self)

    @cached_property
    def structure_hash(self) -> str:
        """Hash of the algebraic structure, sizes and schedule erased (see `structure.structure_hash`)."""
        from workbench.ugraph.structure import structure_hash

        return structure_hash(self)

    def describe(self) -> str:
        """Return the text form (see `text.print_graph`)."""
        from workbench.ugraph.text import print_graph

        return print_graph(self)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{tensor.name}{list(tensor.shape)}" for tensor in self.inputs)
        return f"<KernelGraph {self.name or 'unnamed'}({shapes}), {counted(len(self.nodes), 'kernel')}>"


def kernel_node_name(node: KernelNode) -> str:
    """Return how messages call a node: what it is and the tensors it makes."""
    what = node.op if isinstance(node, OpNode) else (node.name or "graph-defined operator")
    return f"{what} {', '.join(tensor.name for tensor in node.results)}"


def expect_kernel_graph(given: object, purpose: str) -> None:
    """Check that a public function was given a kernel graph. Raises: UsageError naming the purpose and the cure."""
    if not isinstance(given, KernelGraph):
        cure = "call a program with its sizes to get its graph" if callable(given) else "trace or load one"
        raise UsageError(f"a KernelGraph is {purpose}, got {type(given).__name__}; {cure}")
