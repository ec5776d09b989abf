"""Which parts of a program are LAX: where it has to be cut so that each part has at most one exponential on any path.

Invariant: the parts in order, joined again, are the program; a part reads program inputs and results of earlier parts
only. (LAX: multi-linear operators, division, at most one exponential on any path; Mirage OSDI'25, definition 5.1.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from workbench.core.tensors import DeviceTensor
from workbench.errors import ResultMismatchError, UsageError
from workbench.ops.spec import Opaque, OutsideLax
from workbench.ugraph.expand import expand_composites
from workbench.ugraph.kernel_graph import KernelGraph, expect_kernel_graph, kernel_node_name
from workbench.ugraph.nodes import GraphDefinedNode, KernelNode, OpNode


@dataclass(frozen=True, slots=True)
class LaxPart:
    """A part of a program.

    Attributes: graph: its operators, tensors named as in the program; is_lax: False for one operator that has no meaning
    in a finite field (a logarithm, an error function, ...), which stays as it is; reason: why it was cut off.
    """

    graph: KernelGraph
    is_lax: bool
    reason: str = ""


def split_lax(program: KernelGraph, *, max_operators: int | None = None) -> tuple[LaxPart, ...]:
    """Return the parts of a program, in an order in which they can run; a program that is LAX and in one piece is its one part.

    That one is the program itself: inputs that nothing reads and the order of outputs are its own.

    Cut: before a second exponential on a path; around an operator without meaning in a finite field; and, where
    `max_operators` is given, before a part has more operators of the kernel level than that. Parts without a tensor in
    common are parts of their own.
    Raises: UsageError for a program that already has block graphs, or `max_operators` below 1.
    """
    expect_kernel_graph(program, "cut")
    if program.graph_defined:
        raise UsageError(f"{program.name or 'the program'} has block graphs; split_lax cuts programs of operators only")
    if max_operators is not None and max_operators < 1:
        raise UsageError(f"max_operators {max_operators}: a part has at least 1 operator")
    stages = _stages(program, max_operators)
    parts = []
    for number in sorted({stage.number for stage in stages}):
        members = [(node, stage) for node, stage in zip(program.nodes, stages, strict=True) if stage.number == number]
        for component in _components([node for node, _ in members]):
            reason = next((stage.reason for node, stage in members if node in component and stage.reason), "")
            is_lax = all(stage.is_lax for node, stage in members if node in component)
            parts.append(LaxPart(_part(program, component), is_lax, reason))
    if len(parts) == 1 and parts[0].is_lax:
        return (replace(parts[0], graph=program),)
    return tuple(parts)


def join_parts(program: KernelGraph, parts: Sequence[LaxPart], graphs: Sequence[KernelGraph]) -> KernelGraph:
    """Return one kernel graph that computes a program by one graph for each of its parts, in the order of the parts.

    Each graph has its part's inputs and outputs, by position. Outputs keep the program's names where they can.
    Raises: ResultMismatchError for a graph whose interface is another than its part's.
    """
    if len(parts) != len(graphs):
        raise ResultMismatchError(
            f"{len(parts)} parts, {len(graphs)} graphs", program.name or "program", "give one graph for each part"
        )
    taken = {*program.tensors}
    names: dict[str, str] = {tensor.name: tensor.name for tensor in program.inputs}
    nodes: list[KernelNode] = []
    for number, (part, graph) in enumerate(zip(parts, graphs, strict=True)):
        if _interface(part.graph) != _interface(graph):
            raise ResultMismatchError(
                f"part {number} has inputs and outputs {_interface(part.graph)}, its graph {_interface(graph)}",
                f"part {number} of {program.name or 'program'}",
                "give a graph with the part's shapes, types and strides, by position",
            )
        inner = {own.name: names[outer.name] for own, outer in zip(graph.inputs, part.graph.inputs, strict=True)}
        wanted = dict(zip(graph.output_names, part.graph.output_names, strict=True))
        used = set(inner.values())
        for node in graph.nodes:
            for tensor in node.results:
                name = wanted.get(tensor.name)
                if name is None or name in used:
                    name = _fresh(tensor.name, taken)
                inner[tensor.name] = name
                taken.add(name)
                used.add(name)
            nodes.append(_renamed(node, inner))
        names.update(
            (outer, inner[own]) for own, outer in zip(graph.output_names, part.graph.output_names, strict=True)
        )
    return KernelGraph(program.inputs, tuple(nodes), tuple(names[name] for name in program.output_names), program.name)


def _interface(graph: KernelGraph) -> list[list[str]]:
    return [
        [f"{tensor.dtype.value}{list(tensor.shape)}/{list(tensor.strides)}" for tensor in group]
        for group in (graph.inputs, graph.outputs)
    ]


@dataclass(frozen=True, slots=True)
class _Stage:
    """Where a node runs: after everything of a smaller number; exponentials on the deepest path within the stage."""

    number: int
    exponentials: int
    is_lax: bool
    reason: str = ""


def _stages(program: KernelGraph, max_operators: int | None) -> list[_Stage]:
    made: dict[str, _Stage] = {}
    counts: dict[int, int] = {}
    stages = []
    for node in program.nodes:
        assert isinstance(node, OpNode)
        before = [made[name] for name in node.operands if name in made]
        number = max((stage.number if stage.is_lax else stage.number + 1 for stage in before), default=0)
        opaque, own = _nature(program, node)
        within = max((stage.exponentials for stage in before if stage.number == number), default=0)
        reason = ""
        if opaque:
            number, own, within = number + 1 if before else number, 0, 0
            reason = f"{kernel_node_name(node)}: {opaque}"
        elif own and within + own > max(1, own):
            number, within = number + 1, 0
            reason = f"{kernel_node_name(node)} is a second exponential on a path"
        if max_operators is not None:
            while counts.get(number, 0) >= max_operators:
                number, within = number + 1, 0
                reason = reason or f"{kernel_node_name(node)} would be operator {max_operators + 1} of a part"
        stage = _Stage(number, within + own, not opaque, reason)
        counts[number] = counts.get(number, 0) + 1
        for tensor in node.results:
            made[tensor.name] = stage
        stages.append(stage)
    return stages


def _nature(program: KernelGraph, node: OpNode) -> tuple[str, int]:
    """Return why a node has no meaning in a finite field ("" if it has), and its exponentials on its deepest path."""
    operands = tuple(replace(program.tensor(name), name=f"operand_{i}") for i, name in enumerate(node.operands))
    alone = replace(node, operands=tuple(tensor.name for tensor in operands))
    graph = KernelGraph(operands, (alone,), tuple(tensor.name for tensor in node.results))
    depth: dict[str, int] = {}
    reason = ""
    for inner in expand_composites(graph).nodes:
        assert isinstance(inner, OpNode)
        if isinstance(inner.spec.field, Opaque | OutsideLax):
            reason = inner.spec.field.why
        deepest = max((depth.get(name, 0) for name in inner.operands), default=0) + (inner.op == "exp")
        depth.update(dict.fromkeys((tensor.name for tensor in inner.results), deepest))
    return reason, max(depth.values(), default=0)


def _components(nodes: Sequence[KernelNode]) -> Iterator[list[KernelNode]]:
    """Yield the groups of nodes that share a tensor, each in order; groups in the order of their first nodes."""
    groups: list[tuple[set[str], list[KernelNode]]] = []
    for node in nodes:
        tensors = {*node.operands, *(tensor.name for tensor in node.results)}
        touched = [group for group in groups if group[0] & tensors]
        merged = [other for group in touched for other in group[1]]
        groups = [group for group in groups if group not in touched]
        groups.append((tensors.union(*(group[0] for group in touched)), [*merged, node]))
    order = {id(node): position for position, node in enumerate(nodes)}
    ordered = [sorted(group, key=lambda node: order[id(node)]) for _, group in groups]
    yield from sorted(ordered, key=lambda group: order[id(group[0])])


def _part(program: KernelGraph, nodes: Sequence[KernelNode]) -> KernelGraph:
    own = {tensor.name for node in nodes for tensor in node.results}
    read = dict.fromkeys(name for node in nodes for name in node.operands if name not in own)
    order = {name: position for position, name in enumerate(program.tensors)}
    inputs = tuple(program.tensor(name) for name in sorted(read, key=order.__getitem__))
    inside = {id(node) for node in nodes}
    outside = {name for node in program.nodes if id(node) not in inside for name in node.operands}
    outputs = tuple(
        tensor.name
        for node in nodes
        for tensor in node.results
        if tensor.name in outside or tensor.name in program.output_names
    )
    if not outputs:  # nothing reads it: the program keeps it, so do we
        outputs = tuple(tensor.name for tensor in nodes[-1].results)
    return KernelGraph(inputs, tuple(nodes), outputs, program.name)


def _fresh(stem: str, taken: set[str]) -> str:
    if stem not in taken:
        return stem
    number = 1
    while f"{stem}_{number}" in taken:
        number += 1
    return f"{stem}_{number}"


def _renamed(node: KernelNode, names: Mapping[str, str]) -> KernelNode:
    operands = tuple(names[name] for name in node.operands)
    results = []
    for tensor in node.results:
        assert isinstance(tensor, DeviceTensor)
        results.append(replace(tensor, name=names[tensor.name]))
    if isinstance(node, GraphDefinedNode):
        return replace(node, operands=operands, results=tuple(results))
    return replace(node, operands=operands, results=tuple(results))
