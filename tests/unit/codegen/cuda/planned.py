"""Plans of small block graphs, for the tests of what plans are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from workbench.codegen.cuda.c_names import CNames
from workbench.codegen.cuda.lowering import LoweredBlock, lower_block
from workbench.codegen.cuda.plan import KernelPlan, make_plan
from workbench.codegen.cuda.schedule import DEFAULT_SCHEDULE, Schedule
from workbench.codegen.cuda.shared_memory import allocate, derive_barriers
from workbench.core.dtypes import DType
from workbench.ugraph.builder import BlockBuilder, KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import GraphDefinedNode

Fill = Callable[[BlockBuilder], None]


def block_graph(
    fill: Fill,
    *shapes: Sequence[int],
    dtype: DType = DType.FLOAT16,
    grid: tuple[int, ...] = (1,),
    loop: int = 1,
    cluster: tuple[int, ...] = (1,),
) -> KernelGraph:
    """A kernel graph of one block graph that `fill` builds over inputs X, Y, Z ... of these shapes."""
    kernel = KernelBuilder("small")
    inputs = [kernel.input(name, shape, dtype) for name, shape in zip("XYZUV", shapes, strict=False)]
    block = kernel.block(*inputs, grid=grid, loop=loop, cluster=cluster)
    fill(block)
    kernel.output(*block.finish(name="small"))
    return kernel.build()


def node_of(graph: KernelGraph) -> GraphDefinedNode:
    (node,) = graph.graph_defined
    return node


def lowered(graph: KernelGraph) -> LoweredBlock:
    node = node_of(graph)
    return lower_block(node.block, node.results, CNames())


def planned(
    graph: KernelGraph, *, threads: int = 128, cluster: int = 1, schedule: Schedule = DEFAULT_SCHEDULE
) -> KernelPlan:
    """The plan of a graph's block graph, tiles placed and barriers derived."""
    node, names = node_of(graph), CNames()
    plan = make_plan(lower_block(node.block, node.results, names), schedule, names, threads, cluster)
    allocate(plan)
    derive_barriers(plan)
    return plan


def looped_product(block: BlockBuilder) -> None:
    """X Y over the loop, divided by the root mean square of the rows of X."""
    x, y = block.load(0, fmap=1), block.load(1, fmap=0)
    block.save(block.accumulate(x @ y) / block.accumulate(x, "rms"))


def attention(block: BlockBuilder) -> None:
    """exp(X Y) Z over the keys, divided by the sums of the rows of exp(X Y)."""
    q, k, v = block.load(0), block.load(1, fmap=1), block.load(2, fmap=0)
    weights = block.apply("exp", q @ k)
    block.save(block.accumulate(weights @ v) / block.accumulate(weights, "sum_dim"))
