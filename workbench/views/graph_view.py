"""A µGraph as plain view data: nodes, nested clusters, edges. Invariant: what is not shown is counted and said.

Every picture, table and widget of a graph is made from this, so they cannot disagree; it knows no drawing program.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import assert_never

from workbench.core.levels import Level
from workbench.core.tensors import SharedTensor
from workbench.errors import UsageError
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.inference import Place
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import (
    Accumulator,
    BlockNode,
    GraphDefinedNode,
    InputIterator,
    OpNode,
    OutputSaver,
    RunningMax,
    Tensor,
    ThreadNode,
)
from workbench.units import counted
from workbench.views.graph_collapse import block_size, clusters_to_collapse
from workbench.views.graph_labels import launch_text, map_text, read_maps_text, shape_text, type_text

DEFAULT_MAX_NODES = 120
_FEWEST_NODES = 3


class Kind(Enum):
    """What a node of a picture stands for."""

    INPUT = "input"
    OUTPUT = "output"
    OPERATOR = "operator"
    ITERATOR = "input iterator"
    ACCUMULATOR = "accumulator"
    RUNNING_MAX = "running max"
    SAVER = "output saver"
    HIDDEN = "hidden nodes"


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node.

    Attributes: id (unique in the view, stable for equal graphs); level; kind; title (what it is); lines (attributes,
    then the names of its results); cluster (id of the innermost cluster it lies in, "" for none); operands, results:
    tensor names, the results with their types; place: when its value exists, "" outside block graphs; hidden: how many
    nodes it stands for besides itself.
    """

    id: str
    level: Level
    kind: Kind
    title: str
    lines: tuple[str, ...] = ()
    cluster: str = ""
    operands: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    place: str = ""
    hidden: int = 0


@dataclass(frozen=True, slots=True)
class EdgeView:
    """A tensor from the node that makes it to one that reads it.

    Attributes: tensor: its name where it is read; shape: as text, `≤` before an extent that some tiles do not reach;
    maps: omap of the node it leaves, imap and fmap of the node it enters.
    """

    source: str
    target: str
    tensor: str
    shape: str
    maps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A graph inside a graph, or the loop of a block graph (`is_loop`); `parent` is the id of the cluster around it."""

    id: str
    level: Level
    title: str
    lines: tuple[str, ...] = ()
    parent: str = ""
    is_loop: bool = False


@dataclass(frozen=True, slots=True)
class GraphView:
    """All of a picture. `hidden` counts the nodes of the graph that are not shown, `notes` says so in words."""

    name: str
    clusters: tuple[ClusterView, ...]
    nodes: tuple[NodeView, ...]
    edges: tuple[EdgeView, ...]
    hidden: int = 0
    notes: tuple[str, ...] = ()


def view_graph(
    graph: KernelGraph, *, max_nodes: int | None = DEFAULT_MAX_NODES, collapse: Collection[str] = ()
) -> GraphView:
    """Return the view data of a kernel graph.

    max_nodes: how many nodes to show, None for all; beyond it thread graphs collapse into one node each, then block
    graphs, the largest first, then the middle of the kernel graph. collapse: ids of clusters to collapse in any case.
    Raises: UsageError for a limit below 3.
    """
    if max_nodes is not None and max_nodes < _FEWEST_NODES:
        raise UsageError(f"max_nodes is {max_nodes}; give at least {_FEWEST_NODES}, or None to show all nodes")
    folded = set(collapse) if max_nodes is None else clusters_to_collapse(graph, max_nodes, set(collapse))
    view = _Collector(graph, folded).view()
    wished_only = folded == set(collapse)
    if max_nodes is not None and len(view.nodes) > max_nodes:
        view, wished_only = _without_middle(view, max_nodes), False
    if not view.hidden:
        return view
    total = sum(node.kind is not Kind.HIDDEN for node in view.nodes) + view.hidden
    cure = "expand them" if wished_only else f"raise max_nodes (now {max_nodes})"
    are = "is" if view.hidden == 1 else "are"
    note = f"{view.hidden} of {counted(total, 'node')} {are} hidden in the dashed boxes; {cure} to see all"
    return replace(view, notes=(note,))


def _without_middle(view: GraphView, max_nodes: int) -> GraphView:
    """Return a view of at most `max_nodes` nodes: the first ones and the outputs, one node in place of the others.

    view: every graph inside it is collapsed, so it has no clusters.
    """
    tail = [node for node in view.nodes if node.kind is Kind.OUTPUT][: (max_nodes - 1) // 2]
    kept = {node.id for node in tail}
    head = [node for node in view.nodes if node.id not in kept][: max_nodes - 1 - len(tail)]
    kept |= {node.id for node in head}
    hidden = sum(node.hidden or 1 for node in view.nodes if node.id not in kept)
    middle = NodeView("hidden", Level.KERNEL, Kind.HIDDEN, "…", (f"{counted(hidden, 'node')} hidden",), hidden=hidden)
    edges: dict[tuple[str, str, str], EdgeView] = {}
    for edge in view.edges:
        if edge.source in kept and edge.target in kept:
            edges[edge.source, edge.target, edge.tensor] = edge
        elif edge.source in kept or edge.target in kept:
            source, target = (end if end in kept else middle.id for end in (edge.source, edge.target))
            edges[source, target, ""] = EdgeView(source, target, "", "")
    still = sum(node.hidden for node in (*head, *tail))
    return GraphView(view.name, (), (*head, middle, *tail), tuple(edges.values()), hidden + still)


class _Collector:
    """Walks a kernel graph once and gathers what its picture shows."""

    def __init__(self, graph: KernelGraph, folded: Collection[str]) -> None:
        self.graph, self.folded = graph, folded
        self.nodes: list[NodeView] = []
        self.edges: list[EdgeView] = []
        self.clusters: list[ClusterView] = []
        # kernel tensor -> node that makes it, and its omap in words
        self.makers: dict[str, tuple[str, tuple[str, ...]]] = {}

    def view(self) -> GraphView:
        for number, tensor in enumerate(self.graph.inputs):
            lines = [type_text(tensor)]
            if not tensor.is_row_major:
                lines.append(f"strides {', '.join(map(str, tensor.strides))}")
            self._node(f"i{number}", Level.KERNEL, Kind.INPUT, tensor.name, lines, results=(tensor,))
            self.makers[tensor.name] = (f"i{number}", ())
        for number, node in enumerate(self.graph.nodes):
            match node:
                case OpNode():
                    self._operator(f"n{number}", Level.KERNEL, node, "", "")
                    for operand in node.operands:
                        self._kernel_edge(operand, f"n{number}", operand, ())
                    self.makers |= {tensor.name: (f"n{number}", ()) for tensor in node.results}
                case GraphDefinedNode() if f"n{number}" in self.folded:
                    self._folded_block(f"n{number}", node)
                case GraphDefinedNode():
                    self._block(f"n{number}", node)
                case _:
                    assert_never(node)
        for number, name in enumerate(self.graph.output_names):
            tensor = self.graph.tensors[name]
            title = name if len(self.graph.output_names) == 1 else f"{name}  (output {number})"
            self._node(f"o{number}", Level.KERNEL, Kind.OUTPUT, title, [type_text(tensor)], operands=(name,))
            self._kernel_edge(name, f"o{number}", name, ())
        hidden = sum(node.hidden for node in self.nodes)
        return GraphView(self.graph.name, tuple(self.clusters), tuple(self.nodes), tuple(self.edges), hidden)

    # ------------------------------------------------------------------------------------------------- block graphs
    def _block(self, key: str, node: GraphDefinedNode) -> None:
        block = node.block
        title = " ".join(["block graph", node.name]).strip()
        self.clusters.append(ClusterView(key, Level.BLOCK, title, (launch_text(block),)))
        loop = ""
        if block.forloop_range > 1:
            loop = f"{key}.loop"
            title = f"for-loop, {block.forloop_range} iterations"
            self.clusters.append(ClusterView(loop, Level.BLOCK, title, parent=key, is_loop=True))
        makers: dict[str, str] = {}
        savers = 0
        for position, inner in enumerate(block.nodes):
            name = f"{key}.{position}"
            place = _place(inner, block)
            home = loop if loop and place is Place.LOOP else key
            self._block_node(name, inner, home, place.value, makers, block)
            if isinstance(inner, InputIterator):
                maps = read_maps_text(inner, block)
                tensor = block.operands[inner.operand]
                self._kernel_edge(node.operands[inner.operand], name, tensor.name, maps)
            elif isinstance(inner, OutputSaver):
                omap = map_text("omap", inner.omap, block)
                self.makers[node.results[savers].name] = (name, (omap,) if omap else ())
                savers += 1

    def _block_node(
        self, key: str, node: BlockNode, home: str, place: str, makers: dict[str, str], block: BlockGraph
    ) -> None:
        tiles = block.tiles
        match node:
            case InputIterator():
                source = block.operands[node.operand].name
                self._node(key, Level.BLOCK, Kind.ITERATOR, f"load {source}", [node.result.name], home,
                           (source,), node.results, place)  # fmt: skip
            case OpNode():
                self._operator(key, Level.BLOCK, node, home, place)
            case Accumulator():
                extra = [f"columns={node.columns}"] if node.columns is not None else []
                extra += [f"eps={node.eps}"] if node.eps else []
                title = f"accumulate {node.kind.value}"
                self._node(key, Level.BLOCK, Kind.ACCUMULATOR, title, [*extra, node.result.name], home,
                           node.operands, node.results, place)  # fmt: skip
            case RunningMax():
                names = [tensor.name for tensor in node.results]
                self._node(key, Level.BLOCK, Kind.RUNNING_MAX, "running max", [", ".join(names)], home,
                           node.operands, node.results, place)  # fmt: skip
            case ThreadNode():
                self._thread(key, node, home, place, makers, tiles)
                return
            case OutputSaver():
                self._node(key, Level.BLOCK, Kind.SAVER, "save", [node.operand], home, node.operands, (), place)
            case _:
                assert_never(node)
        for operand in node.operands:
            self.edges.append(EdgeView(makers[operand], key, operand, shape_text(tiles[operand])))
        makers |= {tensor.name: key for tensor in node.results}

    def _folded_block(self, key: str, node: GraphDefinedNode) -> None:
        hidden = block_size(node.block)
        title = " ".join(["block graph", node.name]).strip()
        lines = [launch_text(node.block), f"{hidden} nodes hidden"]
        self._node(key, Level.BLOCK, Kind.HIDDEN, title, lines, "", node.operands, node.results, "", hidden)
        for operand in dict.fromkeys(node.operands):
            self._kernel_edge(operand, key, operand, ())
        self.makers |= {tensor.name: (key, ()) for tensor in node.results}

    # ------------------------------------------------------------------------------------------------ thread graphs
    def _thread(
        self, key: str, node: ThreadNode, home: str, place: str, makers: dict[str, str], tiles: dict[str, SharedTensor]
    ) -> None:
        result = node.results[0].name
        outer = {register.name: name for register, name in zip(node.graph.inputs, node.operands, strict=True)}
        if key in self.folded:
            count = len(node.graph.nodes)
            self._node(key, Level.THREAD, Kind.HIDDEN, "thread graph", [f"{count} nodes hidden", result], home,
                       node.operands, node.results, place, count)  # fmt: skip
            for operand in dict.fromkeys(node.operands):
                self.edges.append(EdgeView(makers[operand], key, operand, shape_text(tiles[operand])))
            makers[result] = key
            return
        self.clusters.append(ClusterView(key, Level.THREAD, "thread graph", (f"result {result}",), home))
        inside: dict[str, str] = {}
        for position, inner in enumerate(node.graph.nodes):
            name = f"{key}.{position}"
            self._operator(name, Level.THREAD, inner, key, place)
            for operand in inner.operands:
                source = inside[operand] if operand in inside else makers[outer[operand]]
                self.edges.append(EdgeView(source, name, operand, shape_text(node.graph.tensor(operand))))
            inside |= {tensor.name: name for tensor in inner.results}
        makers[result] = inside[node.graph.output]

    # ---------------------------------------------------------------------------------------------------- ingredients
    def _node(
        self,
        key: str,
        level: Level,
        kind: Kind,
        title: str,
        lines: Sequence[str],
        cluster: str = "",
        operands: Sequence[str] = (),
        results: Sequence[Tensor] = (),
        place: str = "",
        hidden: int = 0,
    ) -> None:
        typed = tuple(f"{tensor.name}: {type_text(tensor)}" for tensor in results)
        self.nodes.append(
            NodeView(key, level, kind, title, tuple(lines), cluster, tuple(operands), typed, place, hidden)
        )

    def _operator(self, key: str, level: Level, node: OpNode, cluster: str, place: str) -> None:
        attributes = [f"{name}={value}" for name, value in node.attributes]
        names = ", ".join(tensor.name for tensor in node.results)
        self._node(
            key, level, Kind.OPERATOR, node.op, [*attributes, names], cluster, node.operands, node.results, place
        )

    def _kernel_edge(self, tensor: str, target: str, name: str, maps: tuple[str, ...]) -> None:
        source, omap = self.makers[tensor]
        self.edges.append(EdgeView(source, target, name, shape_text(self.graph.tensors[tensor]), omap + maps))


def _place(node: BlockNode, block: BlockGraph) -> Place:
    """Return when a node runs: an accumulator counts to what follows the loop, since its value exists only there."""
    if isinstance(node, OutputSaver):
        return Place.AFTER
    return block.places[node.results[0].name]
