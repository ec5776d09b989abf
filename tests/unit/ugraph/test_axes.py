from __future__ import annotations

from pathlib import Path

import pytest

import workbench as wb
from workbench.errors import NotApplicableError, UnknownNameError
from workbench.ugraph.axes import AxisAnalysis, AxisRole, BlockAxes, analyze_axes, maps_for
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import DimMap, GraphDefinedNode
from workbench.ugraph.value import Value, exp

NAMES = {"X": ("b", "h"), "G": ("h",), "W": ("h", "d")}


def norm_linear() -> KernelGraph:
    return wb.trace(lambda X, G, W: wb.rms_norm(X) * G @ W, X=(4, 6), G=(6,), W=(6, 8))


def split_attention(grid: tuple[int, int, int] = (2, 4, 2), loop: int = 3) -> KernelGraph:
    """Attention with the keys split over grid axis z and looped, and a second kernel that adds the parts."""
    kernel = KernelBuilder("attention")
    q_in, k_in, v_in = kernel.input("Q", (2, 8, 5)), kernel.input("K", (2, 5, 24)), kernel.input("V", (2, 24, 7))
    block = kernel.block(q_in, k_in, v_in, grid=grid, loop=loop)
    q = block.load(q_in, imap=(0, 1, None))
    k = block.load(k_in, imap=(0, None, 2), fmap=2)
    v = block.load(v_in, imap=(0, None, 1), fmap=1)
    weights = exp(q @ k)
    block.save(block.accumulate(weights @ v), omap=(0, 1, 2))
    block.save(block.accumulate(weights, "sum_dim"), omap=(0, 1, 2))
    products, sums = block.finish(names=["products", "sums"])
    second = kernel.block(products, sums, grid=(2, 2))
    o = second.load(products, imap=(0, 1))
    s = second.load(sums, imap=(0, 1))
    second.save(wb.sum_to_columns(o, 7) / wb.sum(s), omap=(0, 1))
    kernel.output(*second.finish(names=["O"]))
    return kernel.build()


# ------------------------------------------------------------------------------------------------------------- names
def test_axes_of_a_program_bear_its_names() -> None:
    analysis = analyze_axes(norm_linear(), NAMES)
    assert list(analysis.axes) == ["b", "h", "d"]
    assert [axis.extent for axis in analysis.axes.values()] == [4, 6, 8]
    assert [axis.role for axis in analysis.axes.values()] == [AxisRole.FREE, AxisRole.REDUCED, AxisRole.FREE]
    assert analysis.dims("X") == (("b",), ("h",))
    assert analysis.dims("G") == (("h",),)
    (output,) = analysis.axis("d").free_in
    assert analysis.dims(output) == (("b",), ("d",))


def test_invented_names_are_letters_in_order_of_appearance() -> None:
    analysis = analyze_axes(wb.trace(lambda X, W: X @ W, X=(4, 6), W=(6, 8)))
    assert [(axis.name, axis.extent) for axis in analysis.axes.values()] == [("a", 4), ("b", 6), ("c", 8)]


def test_invented_names_avoid_given_ones() -> None:
    graph = wb.trace(lambda X, W: X @ W, X=(4, 6), W=(6, 8))
    assert list(analyze_axes(graph, {"W": ("a", "b")}).axes) == ["c", "a", "b"]


def test_two_axes_given_one_name_are_told_apart() -> None:
    graph = wb.trace(lambda X, Y: wb.exp(X) @ Y, X=(4, 6), Y=(6, 4))
    assert list(analyze_axes(graph, {"X": ("n", "h"), "Y": ("h", "n")}).axes) == ["n", "h", "n_2"]


# ------------------------------------------------------------------------------------------------------------- roles
def test_an_axis_can_be_free_and_reduced() -> None:
    graph = wb.trace(lambda X: wb.softmax(X), X=(4, 6))
    row, column = analyze_axes(graph).axes.values()
    assert (row.role, column.role) == (AxisRole.FREE, AxisRole.BOTH)


def test_an_axis_of_an_unused_input_is_unused() -> None:
    analysis = analyze_axes(wb.trace(lambda X, Y: wb.exp(X), X=(4,), Y=(6,)))
    assert [axis.role for axis in analysis.axes.values()] == [AxisRole.FREE, AxisRole.UNUSED]


def test_free_in_names_the_outputs() -> None:
    graph = wb.trace(lambda X, W: (X @ W, wb.sum(X)), X=(4, 6), W=(6, 8))
    rows, hidden, columns = analyze_axes(graph).axes.values()
    assert rows.free_in == graph.output_names
    assert columns.free_in == graph.output_names[:1]
    assert hidden.reduced_by == ((graph.output_names[0],), (graph.output_names[1],))


# ------------------------------------------------------------------------------------- one tensor, several occurrences
def test_a_tensor_times_its_transpose_has_two_row_axes() -> None:
    graph = wb.trace(lambda X: X @ wb.transpose(X), X=(4, 6))
    analysis = analyze_axes(graph, {"X": ("n", "h")})
    assert analysis.dims(graph.output_names[0]) == (("n",), ("n_2",))
    assert analysis.axis("n_2").copy_of == "n"
    assert analysis.axis("n").copy_of is None
    transposed = graph.nodes[0].results[0].name
    assert analysis.operands[(transposed,), 0] == (("n_2",), ("h",))
    assert analysis.operands[(graph.output_names[0],), 0] == (("n",), ("h",))
    assert analysis.axis("h").role is AxisRole.REDUCED


def test_self_attention_pairs_queries_with_keys() -> None:
    graph = wb.trace(
        lambda X, A, B, C: wb.softmax((X @ A) @ wb.transpose(X @ B)) @ (X @ C), X=(4, 8), A=(8, 3), B=(8, 3), C=(8, 5)
    )
    analysis = analyze_axes(graph, {"X": ("n", "h"), "A": ("h", "k"), "C": ("h", "v")})
    assert analysis.dims(graph.output_names[0]) == (("n",), ("v",))
    assert analysis.axis("n").role is AxisRole.FREE
    assert (analysis.axis("n_2").role, analysis.axis("n_2").copy_of) == (AxisRole.REDUCED, "n")
    assert analysis.axis("h").role is AxisRole.REDUCED


def test_a_matrix_applied_twice() -> None:
    """The columns of the first product run over the rows of the second W: its rows are the first W's columns."""
    graph = wb.trace(lambda X, W: X @ W @ W, X=(4, 6), W=(6, 6))
    analysis = analyze_axes(graph)
    first, second = (analysis.dims(node.results[0].name) for node in graph.nodes)
    assert analysis.dims("W") == (("b",), ("c",))
    assert first == (("a",), ("c",))
    assert second == (("a",), ("c_2",))
    assert analysis.operands[(graph.output_names[0],), 1] == (("c",), ("c_2",))


def test_no_tensor_has_an_axis_twice(shared_data: Path) -> None:
    graphs = [wb.programs.get(name) for name in wb.programs.names()]
    graphs += [graph for name in wb.programs.names() for graph in wb.programs.known_good(name)]
    graphs += wb.load(shared_data / "mirage_mugraphs" / "mqa_bs1.json")
    for graph in graphs:
        for dims in analyze_axes(graph).tensors.values():
            names = [name for dim in dims for name in dim]
            assert len(set(names)) == len(names)


# ------------------------------------------------------------------------------------------ products and concatenations
def test_a_dimension_can_be_a_product() -> None:
    graph = wb.trace(lambda X, W: wb.reshape(wb.reshape(X, (4, 3, 8)) @ W, (4, 24)), X=(4, 24), W=(8, 8))
    analysis = analyze_axes(graph, {"X": ("b", "h"), "W": ("i", "o")})
    assert analysis.dims("X") == (("b",), ("h",))
    assert analysis.axis("h").parts == ("h.0", "h.1")
    heads = graph.nodes[0].results[0].name
    assert analysis.dims(heads) == (("b",), ("h.0",), ("h.1",))
    assert analysis.dims("W") == (("h.1",), ("o",))
    assert analysis.dims(graph.output_names[0]) == (("b",), ("h.0", "o"))
    assert [analysis.axis(name).extent for name in ("h.0", "h.1", "h")] == [3, 8, 24]


def test_a_dimension_can_be_a_concatenation() -> None:
    graph = wb.trace(
        lambda X, Y, A, B: wb.concat(X, Y) @ wb.concat(A, B, axis=0), X=(4, 6), Y=(4, 2), A=(6, 8), B=(2, 8)
    )
    analysis = analyze_axes(graph)
    (joined,) = (axis for axis in analysis.axes.values() if axis.joins)
    assert (joined.extent, joined.joins, joined.role) == (8, (("b",), ("c",)), AxisRole.REDUCED)
    assert analysis.dims("A") == (("b",), ("d",))
    assert analysis.dims("B") == (("c",), ("d",))
    assert {analysis.axis(name).role for name in "bc"} == {AxisRole.REDUCED}


def test_pieces_share_an_axis() -> None:
    def gate(X: Value) -> Value:
        left, right = wb.split(X, 2)
        return wb.silu(left) * right

    graph = wb.trace(gate, X=(4, 6))
    analysis = analyze_axes(graph, {"X": ("b", "h")})
    assert analysis.dims("X") == (("b",), ("h",))
    assert [analysis.axis(part).extent for part in analysis.axis("h").parts] == [2, 3]
    assert analysis.dims(graph.output_names[0]) == (("b",), ("h.1",))


def test_a_sum_leaves_a_dimension_without_axes() -> None:
    graph = wb.trace(lambda X: wb.sum(X), X=(4, 6))
    assert analyze_axes(graph).dims(graph.output_names[0]) == (("a",), ())


# ------------------------------------------------------------------------------------------------------ block graphs
def test_maps_read_as_axes() -> None:
    graph = split_attention()
    analysis = analyze_axes(graph, {"Q": ("g", "q", "c"), "K": ("g", "c", "s"), "V": ("g", "s", "d")})
    first, second = analysis.blocks
    assert first.grid == (("g",), ("q",), ("s",))
    assert first.loop == ("s",)
    assert second.grid == (("g",), ("q",), ())
    assert second.loop == ()
    assert analysis.dims("products") == (("g",), ("q",), ("s.z0", "d"))
    assert analysis.dims("sums") == (("g",), ("q",), ("s.z0",))
    assert analysis.dims("O") == (("g",), ("q",), ("d",))
    assert analysis.dims("products", "k") == (("g.tile0",), ("c",), ("s.tile0",))
    assert first.tiles == {"g": "g.tile0", "q": "q.tile0", "s": "s.tile0"}


def test_roles_of_an_axis_that_is_split_looped_and_added_elsewhere() -> None:
    analysis = analyze_axes(split_attention(), {"K": ("g", "c", "s")})
    whole = analysis.axis("s")
    assert whole.role is AxisRole.REDUCED
    assert [path[0] for path in whole.reduced_by] == ["products"] * 3 + ["O"] * 2  # matmul, two accumulators, two sums
    assert {path[0] for path in analysis.axis("s.z0").reduced_by} == {"O"}
    assert [path[0] for path in analysis.axis("s.loop0").reduced_by] == ["products", "products"]
    assert [analysis.axis(f"s.{part}0").extent for part in ("z", "loop", "tile")] == [2, 3, 4]
    assert analysis.axis("s.z0").part_of == "s"
    rows = next(dim[0] for dim in analysis.dims("O")[1:2])
    for name in (rows, f"{rows}.y0", f"{rows}.tile0"):
        assert (analysis.axis(name).role, analysis.axis(name).free_in) == (AxisRole.FREE, ("O",))


def test_axes_do_not_depend_on_counts() -> None:
    names = {"Q": ("g", "q", "c"), "K": ("g", "c", "s"), "V": ("g", "s", "d")}
    texts = {
        str([(path, dims) for path, dims in analyze_axes(split_attention(grid, loop), names).tensors.items()])
        for grid, loop in (((2, 4, 2), 3), ((1, 3, 4), 2), ((2, 8, 3), 5))
    }
    assert len(texts) == 1


def test_the_description_names_what_matters() -> None:
    text = analyze_axes(norm_linear(), NAMES).describe()
    assert [line.split(":")[0] for line in text.splitlines()] == ["b = 4", "h = 6", "d = 8"]
    assert "h = 6: reduced" in text


def test_unknown_names_are_said() -> None:
    analysis = analyze_axes(norm_linear(), NAMES)
    with pytest.raises(UnknownNameError, match="no axis 'x'; the program has: b, h, d"):
        analysis.axis("x")
    with pytest.raises(UnknownNameError, match="no value 'Z'"):
        analysis.dims("Z")


# -------------------------------------------------------------------------------------------------------------- maps
X, W, OUT = (("b",), ("h",)), (("h",), ("d",)), (("b",), ("d",))


def test_maps_of_a_product() -> None:
    maps = maps_for([X, W], [OUT], grid={"x": "d"}, loop="h")
    assert maps.imaps == ((None, None, None), (1, None, None))
    assert maps.fmaps == (1, 0)
    assert maps.omaps == ((1, None, None),)


def test_maps_of_several_grid_axes() -> None:
    maps = maps_for([X, W], [OUT], grid={"x": "d", "y": "b"})
    assert (maps.imaps, maps.fmaps) == (((None, 0, None), (1, None, None)), (None, None))
    assert maps.omaps == ((1, 0, None),)


def test_partial_results_are_laid_in_front_of_an_axis() -> None:
    maps = maps_for([X, W], [OUT], grid={"x": "h", "y": "d"}, lay={"x": "d"})
    assert maps.imaps == ((1, None, None), (0, 1, None))
    assert maps.omaps == ((1, 1, None),)
    sums = maps_for([X], [(("b",), ())], grid={"x": "b", "y": "h"}, lay={"y": 1})
    assert sums.omaps == ((0, 1, None),)


@pytest.mark.parametrize("name", wb.programs.names())
def test_maps_follow_from_the_axes_that_a_graph_uses(name: str) -> None:
    """The maps of every known graph are those of the choice that its analysis reports."""
    for graph in wb.programs.known_good(name):
        analysis = analyze_axes(graph)
        for node, block in zip(graph.graph_defined, analysis.blocks, strict=True):
            check_maps(node, analysis, block)


def check_maps(node: GraphDefinedNode, analysis: AxisAnalysis, block: BlockAxes) -> None:
    counts = dict(zip("xyz", node.block.grid_dims, strict=True))
    choice = {letter: axes[0] for letter, axes in zip("xyz", block.grid, strict=True) if axes and counts[letter] > 1}

    def chosen(maps: DimMap) -> DimMap:  # a count of 1 may be mapped or not
        x, y, z = (dim if counts[letter] > 1 else None for letter, dim in zip("xyz", maps, strict=True))
        return x, y, z

    iterators = node.block.iterators
    inputs = [analysis.dims(node.operands[iterator.operand]) for iterator in iterators]
    outputs, lay = [], {}
    for tensor in node.results:
        dims = []
        for number, dim in enumerate(analysis.dims(tensor.name)):
            laid = {
                letter: part for letter, axis in choice.items() for part in dim if part.startswith(f"{axis}.{letter}")
            }
            dims.append(tuple(part for part in dim if part not in laid.values()))
            lay.update(dict.fromkeys(laid, number))
        outputs.append(tuple(dims))
    maps = maps_for(inputs, outputs, grid=choice, loop=block.loop[0] if block.loop else None, lay=lay)
    assert maps.imaps == tuple(chosen(iterator.imap) for iterator in iterators)
    assert maps.fmaps == tuple(iterator.fmap for iterator in iterators)
    assert maps.omaps == tuple(chosen(saver.omap) for saver in node.block.savers)


@pytest.mark.parametrize(
    ("grid", "loop", "lay", "error", "message"),
    [
        ({"x": "q"}, None, None, UnknownNameError, "no input has an axis 'q'"),
        ({"w": "d"}, None, None, UnknownNameError, "grid axis 'w' splits nothing"),
        ({"x": "d"}, "q", None, UnknownNameError, "no input has an axis 'q'"),
        ({"x": "h"}, None, None, NotApplicableError, "does not have axis h"),
        ({"x": "h"}, None, {"x": "q"}, NotApplicableError, "does not have axis q"),
        ({"x": "h"}, None, {"x": 2}, NotApplicableError, "does not have dimension 2"),
        ({"x": "d", "y": "h"}, None, {"y": "d"}, NotApplicableError, "exchange x and y"),
        ({"x": "d", "y": "h"}, None, {"y": 1}, NotApplicableError, "exchange x and y"),
    ],
)
def test_choices_without_maps(
    grid: dict[str, str], loop: str | None, lay: dict[str, str | int] | None, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        maps_for([X, W], [OUT], grid=grid, loop=loop, lay=lay)


def test_only_the_outermost_axis_of_a_product_can_be_cut() -> None:
    product = (("b",), ("s", "d"))
    assert maps_for([product], [(("b",), ("s", "d"))], grid={"x": "s"}).imaps == ((1, None, None),)
    with pytest.raises(NotApplicableError, match=r"axis d lies inside the product s \* d"):
        maps_for([product], [product], grid={"x": "d"})
