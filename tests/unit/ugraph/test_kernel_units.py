"""Which predefined operators share a kernel: chains do, rows with one folded axis do, circles never arise."""

from __future__ import annotations

import pytest

from workbench import programs
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.kernel_units import Grouping, Unit, UnitKind, folded_axis, live_nodes, row_space
from workbench.ugraph.nodes import OpNode


def grouped(graph: KernelGraph) -> list[tuple[UnitKind, list[str]]]:
    return [(unit.kind, [node.op for node in unit.operators]) for unit in Grouping(graph).run()]


def test_a_chain_is_one_kernel() -> None:
    k = KernelBuilder("chain")
    x, y = k.input("X", (4, 8)), k.input("Y", (8,))
    k.output(k.apply("exp", x * y + 1))
    assert [kind for kind, _ in grouped(k.build())] == [UnitKind.FLAT]


def test_rows_with_one_folded_axis_are_one_kernel() -> None:
    k = KernelBuilder("rows")
    x = k.input("X", (4, 8))
    e = k.apply("exp", x - k.apply("max", x, axis=-1))
    k.output(e / k.apply("sum", e, axis=-1))
    assert [kind for kind, _ in grouped(k.build())] == [UnitKind.ROWS]


def test_two_folded_axes_are_two_kernels() -> None:
    k = KernelBuilder("axes")
    x = k.input("X", (4, 8))
    k.output(k.apply("sum", k.apply("exp", x), axis=-1), k.apply("sum", x, axis=-2))
    found = grouped(k.build())
    assert [kind for kind, _ in found].count(UnitKind.ROWS) == 2


def test_a_product_stands_alone_and_breaks_chains() -> None:
    k = KernelBuilder("product")
    x, w = k.input("X", (4, 8)), k.input("W", (8, 4))
    k.output(k.apply("relu", k.apply("exp", x) @ w))
    assert [kind for kind, _ in grouped(k.build())] == [UnitKind.FLAT, UnitKind.PRODUCT, UnitKind.FLAT]


def test_units_never_wait_in_a_circle() -> None:
    """exp(x) and exp(x) + (exp(x) @ w) may not join: the sum needs the product, the product the exponential."""
    k = KernelBuilder("circle")
    x, w = k.input("X", (8, 8)), k.input("W", (8, 8))
    e = k.apply("exp", x)
    k.output(e + e @ w)
    kinds = [kind for kind, _ in grouped(k.build())]
    assert kinds == [UnitKind.FLAT, UnitKind.PRODUCT, UnitKind.FLAT]


@pytest.mark.parametrize(("dtype", "units"), [("float16", 1), ("float32", 2)])
def test_a_reshape_shares_memory_where_the_type_is_the_same(dtype: str, units: int) -> None:
    k = KernelBuilder("view")
    x = k.input("X", (4, 8))
    y = k.apply("softmax", x, name="Y")
    k.apply("reshape", y, shape=(32,), name="Z")
    (z,) = k.restate(DeviceTensor("Z", (32,), DType(dtype)))
    k.output(z)
    grouping = Grouping(k.build())
    assert len(grouping.run()) == units
    assert grouping.home("Y") == ("Z" if units == 1 else "Y")


@pytest.mark.parametrize("name", programs.names())
def test_programs_are_grouped_whole_and_in_order(name: str) -> None:
    graph = programs.get(name)
    units = Grouping(graph).run()
    nodes = [node for unit in units for node in unit.nodes]
    assert len(nodes) == len(set(map(id, nodes)))
    wanted = [node for node in live_nodes(graph) if not (isinstance(node, OpNode) and node.op == "constant")]
    assert set(map(id, wanted)) <= set(map(id, nodes))
    done: set[Unit] = set()
    for unit in units:
        assert unit.needs <= done
        done.add(unit)


def test_constants_belong_to_every_reader() -> None:
    k = KernelBuilder("constants")
    x, w = k.input("X", (4, 8)), k.input("W", (8, 4))
    half = k.value(0.5)
    k.output((x * half) @ w * half)
    graph = k.build()
    grouping = Grouping(graph)
    for unit in grouping.run():
        assert all(name not in grouping.constants for name in grouping.inputs(unit))


def test_row_spaces() -> None:
    k = KernelBuilder("spaces")
    x = k.input("X", (4, 8))
    k.output(k.apply("sum", x, axis=-1), k.apply("transpose", x))
    graph = k.build()
    fold, move = (node for node in graph.nodes if isinstance(node, OpNode))
    assert row_space(graph, [fold]) == ((4, 8), -1)
    assert row_space(graph, [fold, move]) is None
    assert (folded_axis(fold), folded_axis(move)) == (-1, None)
