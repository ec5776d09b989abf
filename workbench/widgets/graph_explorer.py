"""The explorer of a µGraph: three levels in place, what each block reads and writes, memory, and the code of each node.

Invariant: the picture, the table, the tiles, CUDA and PTX name nodes by the same ids, so a node that is chosen in one is
chosen in all. `wb.widgets.GraphExplorer`.
Long because choosing, moving and comparing share one graph and its emitted text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import traitlets

from workbench.codegen.cuda.emitted import EmittedProgram, KernelSource
from workbench.codegen.cuda.kernel_level import emit_program
from workbench.core.levels import Level
from workbench.core.shapes import num_elements
from workbench.cost.hardware import hardware
from workbench.device.compile import compile_ptx
from workbench.errors import KernelCompileError, UsageError, WorkbenchError
from workbench.optimize.lifetimes import block_lifetimes
from workbench.optimize.memory import MemoryPlan, plan_memory
from workbench.programs import registry
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import GraphDefinedNode, Tensor
from workbench.views.code_lines import CodeLine, code_html, code_lines, kernel_of
from workbench.views.graph_collapse import cluster_sizes
from workbench.views.graph_diff import diff_html
from workbench.views.graph_view import DEFAULT_MAX_NODES, GraphView, Kind, view_graph
from workbench.views.markup import Cell, Row, doing, facts, number, paragraph, table, words
from workbench.views.memory_chart import memory_svg
from workbench.views.ptx_lines import PtxLine, ptx_html, ptx_lines, ptx_of
from workbench.views.svg import Theme, graph_svg
from workbench.views.tile_maps import tile_views, tiles_html
from workbench.widgets.panel import Panel, Spec, button, expect, field, next_line, pane
from workbench.widgets.worker import Worker

_NODE = re.compile(r'id="(wb[0-9a-f]+)-node-([^"]+)"')
_AXES = ("block_x", "block_y", "block_z")
NOTHING, GIVEN, AS_WRITTEN = "nothing", "the graph given", "the program as written"
_SHORTCUTS = {
    "ArrowRight": ["next_node", None, "next node"],
    "ArrowLeft": ["previous_node", None, "node before"],
    "Enter": ["toggle_open", None, "open or close the graph chosen"],
    "o": ["open_all", None, "open all graphs"],
    "x": ["close_all", None, "close all graphs"],
    "i": ["next_iteration", None, "next iteration"],
    "g": ["next_block", None, "next block of the grid"],
    "p": ["toggle_ptx", None, "show PTX or hide it"],
    "Escape": ["unselect", None, "choose nothing"],
}


class GraphExplorer(Panel):
    """Explores a kernel graph.

    Traits: opened: ids of the graphs inside that are drawn open (`n0` a block graph, `n0.7` a thread graph in it); kernel:
    which graph-defined operator the lower panels are about; block_x, block_y, block_z, iteration: which block, when;
    selected: id of a node, or `line:12` of its CUDA; tiles: what that block reads and writes, as text; max_nodes; compare:
    which graph it is compared with, out of `graphs_to_compare`; ptx: whether PTX is shown; instructions: of PTX that are
    chosen; ptx_limit.
    """

    opened = traitlets.List(traitlets.Unicode()).tag(sync=True)
    kernel = traitlets.Unicode().tag(sync=True)
    block_x = traitlets.Int(0, min=0).tag(sync=True)
    block_y = traitlets.Int(0, min=0).tag(sync=True)
    block_z = traitlets.Int(0, min=0).tag(sync=True)
    iteration = traitlets.Int(0, min=0).tag(sync=True)
    tiles = traitlets.List(traitlets.Unicode()).tag(sync=True)
    max_nodes = traitlets.Int(DEFAULT_MAX_NODES, min=3)
    compare = traitlets.Unicode(NOTHING).tag(sync=True)
    ptx = traitlets.Bool(False).tag(sync=True)
    instructions = traitlets.Int(0).tag(sync=True)
    ptx_limit = traitlets.Int(400, min=10)

    layout_rows: Sequence[Sequence[Spec]] = (
        (pane("picture", "graph", grow=3, basis=420, height=560), pane("levels", "levels", basis=240, height=560)),
        (pane("node", "node", basis=260), pane("tiles", "what this block reads and writes", grow=3, basis=420)),
        (pane("memory", "shared memory of a block: address over time", basis=420),
         pane("tensors", "tensors", grow=2, basis=360, height=280)),
        (pane("code", "CUDA of this kernel", grow=3, basis=460, height=420),
         pane("ptx", "PTX of this kernel", grow=2, basis=340, height=420)),
        (pane("diff", "against the other graph", basis=600, height=420),),
    )  # fmt: skip

    def __init__(self, graph: Any, other: Any = None, **values: object) -> None:
        """Show a graph. graph: a KernelGraph, or a candidate of `wb.superoptimize`; other: one to compare it with.

        Raises: UsageError for anything else.
        """
        given = None if other is None else _graph_of(other)
        self._schedules: Mapping[str, Any] = getattr(graph, "schedules", {})
        self.graph = _graph_of(graph)
        self._views: dict[tuple[tuple[str, ...], int], GraphView] = {}
        self._emitted: EmittedProgram | str | None = None
        self._code: dict[str, tuple[CodeLine, ...]] = {}
        self._ptx: dict[str, tuple[PtxLine, ...] | str] = {}
        self._worker = Worker("ptx")
        self.graphs_to_compare = _others(self.graph, given)
        if given is not None:
            values.setdefault("compare", GIVEN)
        launches = list(self.launches)
        values.setdefault("kernel", launches[0] if launches else "")
        values.setdefault("opened", [name for name in launches if len(launches) == 1])
        super().__init__(title=f"µGraph {self.graph.name or self.graph.hash[:10]}", shortcuts=_SHORTCUTS, **values)
        self.observe(self._drawn_again, ["opened", "theme", "max_nodes", "compare", "ptx_limit"])
        self.observe(self._follow_ptx, "ptx")
        self.observe(self._follow_kernel, "kernel")
        self.observe(self._moved, [*_AXES, "iteration"])
        self.observe(self._chosen, "selected")
        self._draw_controls()
        self._follow_ptx(None)

    # ---------------------------------------------------------------------------------------------------------- levels
    @property
    def launches(self) -> dict[str, GraphDefinedNode]:
        """The graph-defined operators by id."""
        return {
            f"n{number}": node for number, node in enumerate(self.graph.nodes) if isinstance(node, GraphDefinedNode)
        }

    @property
    def inner_graphs(self) -> dict[str, tuple[Level, int]]:
        """Level and number of nodes of every graph inside, by id."""
        return cluster_sizes(self.graph)

    def unfold(self, name: str) -> None:
        """Draw a graph inside open, and those around it. Raises: UsageError."""
        if name not in self.inner_graphs:
            raise UsageError(f"no graph {name!r} inside; there are {', '.join(self.inner_graphs) or 'none'}")
        around = [name.partition(".")[0], name]
        self.opened = [key for key in self.inner_graphs if key in self.opened or key in around]

    def fold(self, name: str) -> None:
        """Draw a graph inside as one node."""
        self.opened = [key for key in self.opened if key != name and not key.startswith(f"{name}.")]

    def do_toggle_open(self, name: str | None = None) -> None:
        """Open or close a graph, by default the one chosen."""
        name = name or self.selected
        if name in self.opened:
            self.fold(name)
        elif name in self.inner_graphs:
            self.unfold(name)

    def do_open_all(self) -> None:
        """Open everything."""
        self.opened = list(self.inner_graphs)

    def do_close_all(self) -> None:
        """Close everything."""
        self.opened = []

    def do_next_node(self) -> None:
        """Choose the next node that is drawn."""
        self._choose(1)

    def do_previous_node(self) -> None:
        """Choose the node before."""
        self._choose(-1)

    def _choose(self, step: int) -> None:
        names = [node.id for node in self.view().nodes]
        at = names.index(self.selected) + step if self.selected in names else 0 if step > 0 else -1
        self.selected = names[at % len(names)]

    def do_next_iteration(self) -> None:
        """Go to the next iteration, after the last to the first."""
        launch = self.launches.get(self.kernel)
        self.iteration = (self.iteration + 1) % (launch.block.forloop_range if launch else 1)

    def do_next_block(self) -> None:
        """Go to the next block, x first."""
        launch = self.launches.get(self.kernel)
        if launch is None:
            return
        for axis, count in zip(_AXES, launch.block.grid_dims, strict=True):
            index = getattr(self, axis) + 1
            setattr(self, axis, index % count)
            if index < count:
                return

    def do_toggle_ptx(self) -> None:
        """Show PTX, or hide it."""
        self.ptx = not self.ptx

    # --------------------------------------------------------------------------------------------------------- changes
    def _drawn_again(self, change: object) -> None:
        self._draw_controls()
        self.draw()

    def _follow_kernel(self, change: object) -> None:
        launch = self.launches.get(self.kernel)
        with self.hold_trait_notifications():
            for axis, count in zip((*_AXES, "iteration"), self._counts(launch), strict=True):
                setattr(self, axis, min(getattr(self, axis), count - 1))
        if self.selected.startswith("line:"):  # of the kernel before
            self.selected = ""
        self._draw_controls()
        self._follow_ptx(None)

    @staticmethod
    def _counts(launch: GraphDefinedNode | None) -> tuple[int, ...]:
        return (1, 1, 1, 1) if launch is None else (*launch.block.grid_dims, launch.block.forloop_range)

    def _moved(self, change: object) -> None:
        launch = self.launches.get(self.kernel)
        for axis, count in zip((*_AXES, "iteration"), self._counts(launch), strict=True):
            if getattr(self, axis) >= count:
                setattr(self, axis, count - 1)
                return
        self._draw_controls()
        self._draw_tiles()

    def _chosen(self, change: object) -> None:
        name = self.selected.partition(".")[0]
        if name in self.launches and name != self.kernel:
            self.kernel = name
        self.put({"node": self._node_html(), "ptx": self._ptx_html()}, instructions=len(self._instructions()))

    # --------------------------------------------------------------------------------------------------------- drawing
    def view(self) -> GraphView:
        """Return the view data of what is drawn."""
        key = (tuple(self.opened), self.max_nodes)
        if key not in self._views:
            closed = set(self.inner_graphs) - set(self.opened)
            self._views[key] = view_graph(self.graph, max_nodes=self.max_nodes, collapse=closed)
        return self._views[key]

    def draw_all(self) -> None:
        """Draw everything."""
        view = self.view()
        shown = len(view.nodes)
        self.put(
            {
                "picture": self._picture(view),
                "levels": self._levels_html(),
                "node": self._node_html(),
                "memory": self._memory(),
                "tensors": self._tensors(),
                "code": self._code_html(),
                "ptx": self._ptx_html(),
                "diff": self._diff(),
            },
            status=f"{shown} nodes drawn, {view.hidden} inside closed graphs · {self.graph.hash[:12]}",
            notice="; ".join(view.notes),
            instructions=len(self._instructions()),
        )
        self._draw_tiles()

    def _picture(self, view: GraphView) -> str:
        try:
            drawn = graph_svg(view, theme=cast(Theme, self.theme))
        except WorkbenchError as error:
            return paragraph(f"no picture: {error}")
        closed = {node.id for node in view.nodes if node.kind is Kind.HIDDEN}

        def linked(match: re.Match[str]) -> str:
            prefix, name = match[1], match[2]
            action = f" {doing('toggle_open', name)}" if name in closed and name in self.inner_graphs else ""
            return f'id="{prefix}-node-{name}" data-link="{name}" tabindex="0"{action}'

        return _NODE.sub(linked, drawn)

    def _levels_html(self) -> str:
        rows = [Row((Cell("kernel graph", css="wb-event"), number(len(self.graph.nodes)), ""))]
        for name, (level, size) in self.inner_graphs.items():
            state = "open" if name in self.opened else "closed"
            css = "wb-now" if name == self.kernel else ""
            indent = 14 if level is Level.BLOCK else 28
            node = self.launches.get(name)
            label = words(f"{level.value} {node.name if node and node.name else name}")
            cell = Cell(html=f'<span style="padding-left:{indent}px">{label}</span>')
            rows.append(Row((cell, number(size), state), css=css, action=doing("toggle_open", name)))
        return table(("graph", Cell("nodes", is_number=True), "drawn"), rows) + paragraph(
            "click a row, or a dashed node of the picture, to open or close a graph", "wb-quiet"
        )

    def _node_html(self) -> str:
        node = next((node for node in self.view().nodes if node.id == self.selected), None)
        if node is None and self.selected in self.inner_graphs:
            return paragraph(f"{self.selected} is drawn open; its nodes can be chosen", "wb-quiet")
        if node is None and self.selected:
            return paragraph(f"{self.selected.replace(':', ' ')} is chosen; no node of the picture", "wb-quiet")
        if node is None:
            return paragraph("click a node, or use the arrow keys", "wb-quiet")
        told = [
            ("node", f"{node.id}: {node.kind.value} {node.title}"),
            ("level", node.level.value),
            ("when", node.place),
        ]
        told += [
            ("reads", ", ".join(node.operands)),
            ("makes", ", ".join(node.results)),
            ("shown as", ", ".join(node.lines)),
        ]
        return facts(told)

    def _draw_tiles(self) -> None:
        launch = self.launches.get(self.kernel)
        if launch is None:
            self.put({"tiles": paragraph("there is no graph-defined operator, so no block", "wb-quiet")}, tiles=[])
            return
        found = tile_views(launch, (self.block_x, self.block_y, self.block_z), self.iteration)
        lines = [f"{tile.role}: {tile.describe()}" for tile in found]
        self.put({"tiles": tiles_html(found, self.kernel)}, tiles=lines)

    def plan(self) -> MemoryPlan | None:
        """Return where the tiles of the chosen kernel's block lie, None without one. Raises: MemoryLimitError."""
        launch = self.launches.get(self.kernel)
        return None if launch is None else plan_memory(block_lifetimes(launch.block))

    def _memory(self) -> str:
        try:
            plan = self.plan()
        except WorkbenchError as error:
            return paragraph(f"no plan: {error}")
        if plan is None:
            return ""
        kernel = self._kernel()
        told = ""
        if kernel is not None:
            told = (
                f"the kernel below takes {kernel.launch.shared_bytes:,} B: it stages its loads, and keeps in registers "
            )
            told = paragraph(f"{told}what no other thread reads", "wb-quiet")
        return memory_svg(plan, hardware("h200").shared_bytes_per_block) + told

    def _tensors(self) -> str:
        rows = [_tensor_row(tensor, "device") for tensor in self.graph.inputs]
        rows += [_tensor_row(tensor, "device") for node in self.graph.nodes for tensor in node.results]
        launch = self.launches.get(self.kernel)
        if launch is not None:
            plan = self.plan()
            assert plan is not None
            addresses = {life.name: at for life, at in zip(plan.lifetimes, plan.offsets, strict=True)}
            for position, node in enumerate(launch.block.nodes):
                link = f"{self.kernel}.{position}"
                rows += [_tensor_row(tensor, "tile", link, addresses.get(tensor.name)) for tensor in node.results]
        head = ("tensor", "where", "type", "shape", Cell("bytes", is_number=True), Cell("address", is_number=True))
        return table(head, rows)

    def _diff(self) -> str:
        other = self.graphs_to_compare.get(self.compare)
        if other is not None:
            return diff_html(self.graph, other)
        if self.compare == NOTHING:
            return ""
        return paragraph(f"no graph {self.compare!r} to compare with; there are {', '.join(self.graphs_to_compare)}")

    # ------------------------------------------------------------------------------------------------------------ code
    def _kernel(self) -> KernelSource | None:
        """Return the emitted kernel of the chosen operator, None where there is none."""
        launch = self.launches.get(self.kernel)
        if self._emitted is None:
            try:
                self._emitted = emit_program(self.graph, schedules=self._schedules)
            except WorkbenchError as error:
                self._emitted = f"no kernel is written: {error}"
        return None if launch is None or isinstance(self._emitted, str) else kernel_of(self._emitted, launch)

    def _lines(self) -> tuple[CodeLine, ...]:
        kernel, launch = self._kernel(), self.launches.get(self.kernel)
        if kernel is None or launch is None:
            return ()
        if self.kernel not in self._code:
            self._code[self.kernel] = code_lines(kernel.body, launch, self.kernel)
        return self._code[self.kernel]

    def _code_html(self) -> str:
        lines = self._lines()
        if lines:
            known = self._ptx.get(self.kernel, ()) if self.ptx else ()
            return code_html(lines, () if isinstance(known, str) else {line.cuda for line in known})
        if self.kernel not in self.launches:
            return ""
        return paragraph(self._emitted if isinstance(self._emitted, str) else "this operator has no kernel of its own")

    def _follow_ptx(self, change: object) -> None:
        """Draw; what is not compiled yet is compiled beside the notebook."""
        kernel = self._kernel() if self.ptx else None
        if kernel is not None and self.kernel not in self._ptx and not self._worker.is_running:
            name = self.kernel
            self._worker.start(lambda: self._compile(name, kernel))
        self._draw_controls()
        self.draw()

    def _compile(self, name: str, kernel: KernelSource) -> None:
        body = kernel.body.rstrip()
        try:
            text = compile_ptx(kernel.source, flags=("-lineinfo",))
            before = kernel.source.count("\n", 0, kernel.source.rindex(body))
            found = ptx_lines(text, header_lines=before, body_lines=body.count("\n") + 1)
            with self._guard:
                self._ptx[name] = found
        except KernelCompileError as error:
            with self._guard:
                self._ptx[name] = str(error).partition("\n")[0]
        self.draw()
        following = self._kernel() if self.ptx else None
        if following is not None and self.kernel not in self._ptx and not self._worker.stopping.is_set():
            self._compile(self.kernel, following)

    def wait(self, timeout_s: float = 30.0) -> bool:
        """Return whether PTX that is being compiled is there, after waiting for it."""
        return self._worker.wait(timeout_s)

    def _instructions(self) -> tuple[PtxLine, ...]:
        """Return the PTX of what is chosen, all of the kernel's where nothing is; () before it is compiled."""
        known = self._ptx.get(self.kernel, ()) if self.ptx else ()
        return () if isinstance(known, str) else ptx_of(known, self._lines(), self._chosen_code())

    def _chosen_code(self) -> str:
        """Return the node or line that is chosen, "" for none of this kernel."""
        return self.selected if self.selected.startswith((f"{self.kernel}.", "line:")) else ""

    def _ptx_html(self) -> str:
        if not self.ptx or not self._lines():
            return ""
        known = self._ptx.get(self.kernel)
        if known is None:
            return paragraph("compiling with NVRTC; no GPU is needed", "wb-quiet")
        if isinstance(known, str):
            return paragraph(f"no PTX: {known}")
        return ptx_html(known, self._lines(), self._chosen_code(), limit=self.ptx_limit)

    def _draw_controls(self) -> None:
        launch = self.launches.get(self.kernel)
        options = [[name, f"{name} {node.name}".strip()] for name, node in self.launches.items()]
        made: list[Spec] = [
            button("open_all", "open all"),
            button("close_all", "close all"),
            button("toggle_ptx", "PTX", pressed=self.ptx, hint="the instructions that NVRTC makes of the kernel"),
        ]
        if self.graphs_to_compare:
            names = [NOTHING, *self.graphs_to_compare]
            made.append(field("select", "compare", "compare with", options=[[name, name] for name in names]))
        made.append(next_line())
        if options:
            made.append(field("select", "kernel", "kernel", options=options))
        for axis, count in zip((*_AXES, "iteration"), self._counts(launch), strict=True):
            if count > 1:
                label = axis.replace("block_", "block ")
                shown = f"{getattr(self, axis)} of {count}"
                made.append(field("range", axis, label, min=0, max=count - 1, shown=shown))
        self.controls = made

    def describe(self) -> str:
        """Return the graph's text, and what the chosen block reads and writes."""
        return "\n".join([f"GraphExplorer: {self.title}. {self.status}", *self.tiles])

    def settle(self, timeout_s: float) -> None:
        """Wait for what is worked out beside the notebook."""
        self._worker.wait(timeout_s)

    def free(self) -> None:
        """Stop the thread."""
        self._worker.stop()


def _graph_of(value: Any) -> KernelGraph:
    graph = getattr(value, "graph", value)
    expect(graph, KernelGraph, "what is explored")
    return cast(KernelGraph, graph)


def _others(graph: KernelGraph, given: KernelGraph | None) -> dict[str, KernelGraph]:
    """Return graphs to compare with by name: the one given; of a studied program its own text and the known good ones."""
    found = {} if given is None else {GIVEN: given}
    try:
        written = registry.get(graph.name)
        if [tensor.shape for tensor in written.inputs] != [tensor.shape for tensor in graph.inputs]:
            return found
        good = registry.known_good(graph.name)
    except WorkbenchError:
        return found
    named = {AS_WRITTEN: written} | {f"known good {number}": one for number, one in enumerate(good)}
    return found | {name: one for name, one in named.items() if one.hash != graph.hash}


def _tensor_row(tensor: Tensor, where: str, link: str = "", address: int | None = None) -> Row:
    shape = "×".join(map(str, tensor.shape)) or "scalar"
    nbytes = num_elements(tensor.shape) * tensor.dtype.nbytes
    at = number("" if address is None else address)
    return Row((tensor.name, where, str(tensor.dtype), shape, number(nbytes), at), link=link)
