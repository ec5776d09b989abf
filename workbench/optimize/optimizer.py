"""All passes over a verified µGraph, one after the other: `optimize(graph, verifier=...)`.

Invariant: what a pass leaves is a legal graph that the verifier called equal to the graph given; a graph that it does not
call equal is thrown away, and the report says so. Each pass says in words what it changed, and can be switched off.

Order: stable softmax (only on request), thread graphs, layouts, operator order, memory. Later passes see what earlier ones
did: a value in a thread graph needs no layout, one in registers no barrier, and a barrier ends lifetimes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

from workbench.core.layouts import Layout
from workbench.display import Displayed
from workbench.errors import UnknownNameError
from workbench.optimize.layout_elimination import solve_by_elimination
from workbench.optimize.layout_rules import joined_factors
from workbench.optimize.layouts import (
    LayoutChoice,
    Solver,
    choose_layouts,
    plain_layouts,
    tile_sizes,
    with_device_layouts,
)
from workbench.optimize.lifetimes import DOUBLE_BUFFERED, block_lifetimes, device_lifetimes
from workbench.optimize.memory import DEVICE_ALIGNMENT, MemoryPlan, plan_memory, without_reuse
from workbench.optimize.order import Order, as_written, describe_order, order_operators, reordered
from workbench.optimize.stable_softmax import stabilise_softmax
from workbench.optimize.thread_graphs import build_thread_graphs
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import GraphDefinedNode, ThreadNode

STABLE, THREADS, LAYOUTS, ORDER, MEMORY = "stable", "threads", "layouts", "order", "memory"
PASSES = (STABLE, THREADS, LAYOUTS, ORDER, MEMORY)
"""Names of the passes, in the order in which they run; `stable` runs only where it is asked for."""


class Verdict(Protocol):
    """What a verifier answers; `kind` is "equal", "different" or "unknown"."""

    @property
    def kind(self) -> str:
        """The answer."""
        ...

    @property
    def reason(self) -> str:
        """What the answer rests on."""
        ...


Verifier = Callable[[KernelGraph, KernelGraph], Verdict]
"""Program, candidate -> verdict; `workbench.verify` is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """What passes change, counted over a whole program.

    Attributes: barriers: block barriers that a thread passes, all kernels together; standing: those that stand in their
    text; shared_bytes: of the block that needs most; device_bytes: of intermediates; register_bytes: of tiles and
    values of thread graphs that are handed over in registers, all block graphs together; passes: over the banks of
    shared memory, by the prices of the layouts.
    """

    barriers: int
    standing: int
    shared_bytes: int
    device_bytes: int
    register_bytes: int
    passes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PassReport:
    """What a pass did.

    Attributes: name; is_on; changes, in words; before, after: the metrics; verdict: of the verifier where the graph
    changed ("" where it did not, "refused: ..." where the change was thrown away, "not verified" without a verifier).
    """

    name: str
    is_on: bool
    changes: tuple[str, ...]
    before: Metrics
    after: Metrics
    verdict: str

    def describe(self) -> str:
        """Return the pass in words."""
        if not self.is_on:
            return f"{self.name}: off"
        moved = [
            f"{label} {getattr(self.before, key):,} -> {getattr(self.after, key):,}"
            for key, label in _LABELS.items()
            if getattr(self.before, key) != getattr(self.after, key)
        ]
        head = f"{self.name}: " + ("; ".join(moved) or "nothing to gain")
        return "\n".join(
            [head + (f" ({self.verdict})" if self.verdict else ""), *(f"  {line}" for line in self.changes)]
        )


_LABELS = {
    "barriers": "barriers", "shared_bytes": "shared memory B", "device_bytes": "device memory B",
    "register_bytes": "handed over in registers B", "passes": "passes over the banks",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockDecisions:
    """What was decided about one block graph: the order of its nodes, layouts and places of its tiles."""

    order: Order
    layouts: Mapping[str, Layout]
    memory: MemoryPlan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Optimized(Displayed):
    """An optimized µGraph.

    Attributes: graph; blocks: decisions by launch (its first result); layouts: of all tensors; device_memory: places of
    intermediates; metrics; passes: what each did, in order; without: those that were off.
    """

    graph: KernelGraph
    blocks: Mapping[str, BlockDecisions]
    layouts: LayoutChoice
    device_memory: MemoryPlan
    metrics: Metrics
    passes: tuple[PassReport, ...]
    without: frozenset[str]

    def describe(self) -> str:
        """Return what every pass did, in words."""
        return "\n".join(report.describe() for report in self.passes)

    def to_json(self) -> dict[str, object]:
        """Return the plain form: metrics, and per pass its changes, metrics and verdict."""
        return {
            "hash": self.graph.hash,
            "metrics": _plain(self.metrics),
            "passes": [
                {
                    "name": report.name,
                    "on": report.is_on,
                    "changes": list(report.changes),
                    "before": _plain(report.before),
                    "after": _plain(report.after),
                    "verdict": report.verdict,
                }
                for report in self.passes
            ],
        }


def _plain(metrics: Metrics) -> dict[str, int]:
    return {name: getattr(metrics, name) for name in Metrics.__dataclass_fields__}


def optimize(
    graph: KernelGraph,
    without: Iterable[str] = (),
    *,
    verifier: Verifier | None,
    stable: bool = False,
    stages: int = DOUBLE_BUFFERED,
    solver: Solver = solve_by_elimination,
) -> Optimized:
    """Return a µGraph with every pass but those in `without` applied, and all that they decided.

    verifier: called with the graph given and the result of every pass that changes it; None: nothing is verified, and
    the reports say so. stable: rewrite exponentials so that they cannot overflow. stages: buffers of a tile that is
    loaded in every iteration. solver: of the layouts.
    Raises: UnknownNameError for a pass that does not exist; LayoutConflictError where no layouts are possible.
    """
    off = frozenset(without)
    unknown = sorted(off - set(PASSES))
    if unknown:
        raise UnknownNameError(f"no pass {', '.join(unknown)}; passes: {', '.join(PASSES)}")
    run = _Run(graph, verifier, stages, solver)
    for name, action in (
        (STABLE, run.stabilise),
        (THREADS, run.fuse),
        (LAYOUTS, run.lay_out),
        (ORDER, run.order),
        (MEMORY, run.place),
    ):
        run.apply(name, action, is_on=name not in off and (name != STABLE or stable))
    return run.result(off)


@dataclass
class _State:
    """Where the passes are: a graph, and how its metrics are to be read."""

    graph: KernelGraph
    layouts: LayoutChoice
    is_ordered: bool = False
    is_placed: bool = False


@dataclass
class _Run:
    given: KernelGraph
    verifier: Verifier | None
    stages: int
    solver: Solver
    reports: list[PassReport] = field(default_factory=list)
    has_threads: bool = False

    def __post_init__(self) -> None:
        self.state = _State(self.given, plain_layouts(self.given))

    # ---------------------------------------------------------------------------------------------------------- passes
    def stabilise(self) -> tuple[_State, Sequence[str]]:
        """Subtract maxima."""
        found = stabilise_softmax(self.state.graph)
        return self.with_graph(found.graph), (*found.changes, *found.left)

    def fuse(self) -> tuple[_State, Sequence[str]]:
        """Build thread graphs."""
        self.has_threads = True
        fused = build_thread_graphs(self.state.graph)
        return self.with_graph(fused.graph), fused.changes

    def lay_out(self) -> tuple[_State, Sequence[str]]:
        """Choose layouts."""
        before = self.state.graph
        choice = choose_layouts(before, solver=self.solver, elementwise_in_registers=self.has_threads)
        graph = with_device_layouts(before, choice)
        lines = [*choice.relaxed]
        for launch in graph.graph_defined:
            label = launch.results[0].name
            kinds: dict[str, list[str]] = {}
            for name, layout in choice.of_block(label).items():
                kinds.setdefault(str(layout), []).append(name)
            lines += [f"{launch.name or label}: {', '.join(names)}: {kind}" for kind, names in kinds.items()]
        lines += [
            f"{name} is stored {choice.layouts[name,]}"
            for name, tensor in graph.tensors.items()
            if tensor.strides != before.tensors[name].strides
        ]
        return replace(self.state, graph=graph, layouts=choice), lines

    def order(self) -> tuple[_State, Sequence[str]]:
        """Order operators by depth."""
        nodes, lines = [], []
        for node in self.state.graph.nodes:
            if isinstance(node, GraphDefinedNode):
                label = node.results[0].name
                kept = never_shared(node, self.state.layouts)
                order, written = order_operators(node.block, kept), as_written(node.block, kept)
                block = reordered(node.block, order)
                moved = "" if block is node.block else ", operators moved"
                lines.append(
                    f"{node.name or label}: {describe_order(order)}; as written {describe_order(written)}{moved}"
                )
                node = replace(node, block=block)
            nodes.append(node)
        given = self.state.graph
        graph = KernelGraph(given.inputs, tuple(nodes), given.output_names, given.name)
        return replace(self.state, graph=graph if graph != given else given, is_ordered=True), lines

    def place(self) -> tuple[_State, Sequence[str]]:
        """Plan memory."""
        state = replace(self.state, is_placed=True)
        lines = []
        for launch in state.graph.graph_defined:
            plan = self.decide(state, launch).memory
            proof = "the least possible" if not plan.gap else f"at most {plan.gap:.1%} above the least"
            lines.append(
                f"{launch.name or launch.results[0].name}: {plan.total:,} B of shared memory, {proof}; "
                f"{plan.without_reuse:,} B without reuse"
            )
        return state, lines

    # -------------------------------------------------------------------------------------------------------- machinery
    def apply(self, name: str, action: Callable[[], tuple[_State, Sequence[str]]], *, is_on: bool) -> None:
        """Run a pass, verify what it made, and report."""
        before = self.metrics(self.state)
        changes: Sequence[str] = ()
        verdict = ""
        if is_on:
            state, changes = action()
            if state.graph != self.state.graph:
                verdict = self.verdict(state.graph)
            if verdict.startswith("refused"):
                changes = ()
            else:
                self.state = state
        self.reports.append(
            PassReport(
                name=name, is_on=is_on, changes=tuple(changes), before=before, after=self.metrics(self.state),
                verdict=verdict,
            )
        )  # fmt: skip

    def verdict(self, graph: KernelGraph) -> str:
        """Return what the verifier says of a graph, "refused: ..." unless it is equal."""
        if self.verifier is None:
            return "not verified"
        found = self.verifier(self.given, graph)
        return f"equal: {found.reason}" if found.kind == "equal" else f"refused: {found.kind}: {found.reason}"

    def with_graph(self, graph: KernelGraph) -> _State:
        """Return the state with another graph, whose layouts nobody chose yet."""
        return (
            self.state if graph is self.state.graph else replace(self.state, graph=graph, layouts=plain_layouts(graph))
        )

    def decide(self, state: _State, launch: GraphDefinedNode) -> BlockDecisions:
        """Return the decisions about a block graph in a state."""
        label = launch.results[0].name
        layouts, kept = state.layouts.of_block(label), never_shared(launch, state.layouts)
        order = (order_operators if state.is_ordered else as_written)(launch.block, kept)
        lifetimes = block_lifetimes(
            launch.block, order=order, registers=kept, stages=self.stages, sizes=tile_sizes(launch.block, layouts)
        )
        plan = (plan_memory if state.is_placed else without_reuse)(lifetimes)
        return BlockDecisions(order=order, layouts=MappingProxyType(layouts), memory=plan)

    def device_plan(self, state: _State) -> MemoryPlan:
        """Return the places of intermediates in device memory."""
        plan = plan_memory if state.is_placed else without_reuse
        return plan(device_lifetimes(state.graph), alignment=DEVICE_ALIGNMENT)

    def metrics(self, state: _State) -> Metrics:
        """Return the metrics of a state."""
        decided = [(launch, self.decide(state, launch)) for launch in state.graph.graph_defined]
        return Metrics(
            barriers=sum(made.order.barriers for _, made in decided),
            standing=sum(made.order.standing for _, made in decided),
            shared_bytes=max((made.memory.total for _, made in decided), default=0),
            device_bytes=self.device_plan(state).total,
            register_bytes=sum(register_bytes(launch, state.layouts) for launch, _ in decided),
            passes=state.layouts.cost,
        )

    def result(self, off: frozenset[str]) -> Optimized:
        """Return everything."""
        state = self.state
        blocks = {launch.results[0].name: self.decide(state, launch) for launch in state.graph.graph_defined}
        return Optimized(
            graph=state.graph, blocks=MappingProxyType(blocks), layouts=state.layouts,
            device_memory=self.device_plan(state), metrics=self.metrics(state), passes=tuple(self.reports), without=off,
        )  # fmt: skip


def never_shared(launch: GraphDefinedNode, layouts: LayoutChoice) -> frozenset[str]:
    """Return the tiles of a launch that never are in shared memory: in registers, or joined only inside a product."""
    return layouts.registers(launch.results[0].name) | joined_factors(launch.block).keys()


def register_bytes(launch: GraphDefinedNode, layouts: LayoutChoice) -> int:
    """Return the bytes that a block graph hands over in registers: tiles of such layouts, and values of thread graphs."""
    kept = layouts.registers(launch.results[0].name)
    total = sum(tensor.nbytes for name, tensor in launch.block.tiles.items() if name in kept)
    for node in launch.block.nodes:
        if isinstance(node, ThreadNode):
            inner = [tensor for each in node.graph.nodes for tensor in each.results if tensor.name != node.graph.output]
            total += sum(tensor.nbytes for tensor in inner)
    return total
