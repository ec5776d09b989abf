from __future__ import annotations

from fractions import Fraction

import pytest

from workbench.core.dtypes import DType
from workbench.core.tensors import RaggedSplit
from workbench.errors import (
    DTypeError,
    DuplicateNameError,
    FormatError,
    ImapError,
    PlaceError,
    ResultMismatchError,
    SaverError,
    ShapeError,
    ThreadGraphError,
    UnknownNameError,
    WorkbenchError,
)
from workbench.ugraph import text
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.builder import KernelBuilder, ThreadBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import GraphDefinedNode, OpNode
from workbench.ugraph.text import parse_graph, parse_kernel_graph, print_graph
from workbench.ugraph.thread_graph import ThreadGraph

RMS = """\
kernel_graph "rms" {
  input X: float16[16, 100]
  input W: float16[100, 33] strides(1, 100)
  O: float16[16, 33] = block_graph(X, W) grid(4) loop(6) threads(128) cluster(2) {
    x: float16[16, 17 of 100/loop:6] = load(X) fmap(1)
    w: float16[17 of 100/loop:6, 9 of 33/x:4] = load(W) imap(x: 1) fmap(0)
    xw: float16[16, 9 of 33/x:4] = matmul(x, w)
    sum: float32[16, 9 of 33/x:4] = accumulate sum(xw)
    rms: float32[16, 1] = accumulate rms(x, eps=1/1000000)
    q: float32[16, 9 of 33/x:4] = div(sum, rms)
    save(q) omap(x: 1)
  }
  output O
}"""


def built_rms() -> KernelGraph:
    kernel = KernelBuilder("rms")
    x, w = kernel.input("X", (16, 100)), kernel.input("W", (100, 33), strides=(1, 100))
    block = kernel.block(x, w, grid=(4,), loop=6, cluster=(2,))
    left, right = block.load(x, fmap=1), block.load(w, imap=(1,), fmap=0)
    total = block.accumulate(block.apply("matmul", left, right, name="xw"), name="sum")
    block.save(block.apply("div", total, block.accumulate(left, "rms", eps=1e-6, name="rms"), name="q"), omap=(1,))
    kernel.output(*block.finish(names=["O"]))
    return kernel.build()


def test_the_printed_form_of_a_ragged_cluster_graph() -> None:
    assert print_graph(built_rms()) == RMS


def test_parsing_gives_the_built_graph() -> None:
    graph = parse_kernel_graph(RMS)
    assert graph == built_rms()
    assert graph.name == "rms"
    (node,) = graph.nodes
    assert isinstance(node, GraphDefinedNode)
    assert node.block.cluster_dims == (2, 1, 1)
    assert node.block.tiles["w"].ragged == (RaggedSplit(100, ((3, 6),)), RaggedSplit(33, ((0, 4),)))
    assert graph.inputs[1].strides == (1, 100)


def test_the_example_of_the_module_parses_and_prints_as_it_stands() -> None:
    assert text.__doc__ is not None
    example = text.__doc__.split("```")[1].strip()
    assert print_graph(parse_graph(example)) == example


def test_types_comments_and_launch_counts_may_be_left_out() -> None:
    short = """
    kernel_graph "rms" { # a comment
      input X: fp16[16, 100]; input W: half[100, 33] strides(1, 100)
      O = block_graph(X,
                      W) loop(6) cluster(2) grid(4) {   # in any order, over several lines inside parentheses
        x = load(0) fmap(1)
        w = load("W") imap(x: 1) fmap(0)
        xw = matmul(x, w)
        sum = accumulate sum(xw)
        rms = accumulate rms(x, eps=1e-6)
        q = div(sum, rms)
        save(q) omap(x: 1) }
      output O }
    """
    assert parse_graph(short) == built_rms()


def test_every_kind_of_attribute_is_exact() -> None:
    graph = parse_kernel_graph(
        """kernel_graph {
          input X: float32[4, 6]
          a = scale(X, factor=0.1)
          b = clamp(a, lo=-1/3, hi=2)
          c = gelu(b, approximate="tanh")
          d = reshape(c, shape=(2, -1))
          e = sum(d, axis=1)
          f, g = split(d, parts=(5, 7))
          output e, f, g
        }"""
    )
    nodes = [node for node in graph.nodes if isinstance(node, OpNode)]
    found = [node.attribute_map for node in nodes]
    assert found == [
        {"factor": Fraction(1, 10)},
        {"lo": Fraction(-1, 3), "hi": Fraction(2)},
        {"approximate": "tanh"},
        {"shape": (2, 12)},
        {"axis": -1},
        {"axis": -1, "parts": (5, 7)},
    ]
    assert parse_graph(print_graph(graph)) == graph


def test_a_constant_under_any_name_does_not_widen_the_type() -> None:
    graph = parse_kernel_graph(
        """kernel_graph {
          input X: float16[4]
          half = constant(value=1/2)
          y = add(X, half)
          z = block_graph(y) {
            tile = load(y)
            third = constant(value=1/3)
            sum = mul(tile, third)
            save(sum)
          }
          output y, z
        }"""
    )
    assert [tensor.dtype for tensor in graph.outputs] == [DType.FLOAT16, DType.FLOAT16]
    assert graph.graph_defined[0].block.tiles["sum"].dtype is DType.FLOAT16
    assert graph.tensor("half").dtype is DType.FLOAT32


def test_a_block_graph_and_a_thread_graph_alone() -> None:
    block = built_rms().graph_defined[0].block
    printed = print_graph(block)
    assert printed.startswith("block_graph(X: float16[16, 100], W: float16[100, 33] strides(1, 100)) grid(4) loop(6)")
    again = parse_graph(printed)
    assert isinstance(again, BlockGraph)
    assert again == block
    tree = ThreadBuilder()
    p = tree.input("p", (16, 64), DType.FLOAT16)
    graph = tree.build(tree.apply("mul", tree.apply("silu", p), tree.input("q", (16, 64))))
    printed = print_graph(graph)
    assert printed.splitlines() == [
        "thread_graph {",
        "  input p: float16[16, 64]",
        "  input q: float32[16, 64]",
        "  t0: float32[16, 64] = silu(p)",
        "  t1: float32[16, 64] = mul(t0, q)",
        "  output t1",
        "}",
    ]
    assert isinstance(parse_graph(printed), ThreadGraph)
    assert parse_graph(printed) == graph
    with pytest.raises(FormatError, match="expected 'kernel_graph'"):
        parse_kernel_graph(printed)


def test_operands_that_bear_another_name_inside_or_come_twice() -> None:
    kernel = KernelBuilder()
    x = kernel.input("X", (4, 8))
    block = kernel.block(x, x, grid=(2,))
    block.save(block.accumulate(block.load(0, imap=(0,)) * block.load(1, imap=(0,))), omap=(0,))
    kernel.output(*block.finish())
    graph = kernel.build()
    assert "= load(1) imap(x: 0)" in print_graph(graph)
    assert parse_graph(print_graph(graph)) == graph
    renamed = parse_kernel_graph(
        "kernel_graph {\n input X: float16[4]\n Y = block_graph(X as inner) {\n t = load(inner)\n save(t)\n }\n output Y\n}"
    )
    assert renamed.graph_defined[0].block.operands[0].name == "inner"
    assert "block_graph(X as inner)" in print_graph(renamed)
    assert parse_graph(print_graph(renamed)) == renamed


@pytest.mark.parametrize("name", ["input", "two words", 'a"b', "π", "", "7", "tab\t", "line\nbreak", "#", "\ud800"])
def test_any_name_survives(name: str) -> None:
    kernel = KernelBuilder(name)
    kernel.output(kernel.apply("exp", kernel.input(name, (2,))))
    graph = kernel.build()
    again = parse_kernel_graph(print_graph(graph))
    assert again == graph
    assert again.name == name


K = "kernel_graph {\n  input X: float16[4, 6]\n  "
B = K + "O = block_graph(X) grid(2) loop(3) {\n    x = load(X) imap(x: 0) fmap(1)\n    "


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("", FormatError, "line 1, column 1: expected 'kernel_graph', 'block_graph' or 'thread_graph', found the end of the text"),
        ("graph {", FormatError, "line 1, column 1: expected 'kernel_graph'"),
        ("kernel_graph {", FormatError, "line 1, column 15: expected a statement or '}', found the end of the text"),
        (K + "Y = exp(X)\n  output Y\n} more", FormatError, "line 5, column 3: expected the end of the text, found 'more'"),
        (K + "Y = exp(X) Z = exp(X)", FormatError, "line 3, column 14: expected the end of the line or '}', found 'Z'"),
        (K + "Y exp(X)", FormatError, "line 3, column 5: expected ':', ',' or '=', found 'exp'"),
        (K + "Y = exp X", FormatError, r"line 3, column 11: expected '\(', found 'X'"),
        (K + "Y = exp(X", FormatError, r"line 3, column 12: expected ',' or '\)', found the end of the text"),
        (K + "Y = exp(Z)", FormatError, r"line 3, column 11: expected the name of a tensor defined before .*known: X, found 'Z'"),
        (K + "Y = exp(X, base=2)", FormatError, "line 3, column 7: expected an operator with an attribute 'base', found 'exp'"),
        (K + "Y = scale(X, factor=1, factor=2)", FormatError, "line 3, column 26: expected an attribute of scale, each once"),
        (K + "Y = scale(X, factor=1, X)", FormatError, "line 3, column 27: expected '='"),
        (K + "Y = scale(X, factor=1/0)", FormatError, r"line 3, column 23: expected an exact number \(its denominator is 0\)"),
        (K + "Y = scale(X, factor=1e-999999999)", FormatError, "line 3, column 23: expected an exact number"),
        (K + "Y: float16[4, 6.5] = exp(X)", FormatError, "line 3, column 17: expected a whole number"),
        (K + "Y: float16[4, 2 of 6] = exp(X)", FormatError, "line 3, column 23: expected '/' and the cuts"),
        (K + "Y: float16[4, 2 of 6/x:3] = exp(X)", FormatError, "line 3, column 6: expected a type without cuts"),
        (K + "Y: float16[4, 6] strides(1) = exp(X)", FormatError, r"line 3, column 27: expected 2 numbers in \(\)"),
        (K + "Y: int8[4, 6] = exp(X)", DTypeError, "line 3, column 6: data type 'int8' is not supported"),
        (K + "Y: float16[4, 7] = exp(X)", ResultMismatchError, r"line 3, column 3: Y: stated shape \(4, 7\), the node yields"),
        (K + "Y = expo(X)", UnknownNameError, "line 3, column 7: unknown operator 'expo'; did you mean exp"),
        (K + "Y = reshape(X, shape=(5))", ShapeError, "line 3, column 7: .*do not fill"),
        (K + "X = exp(X)", DuplicateNameError, "line 3, column 3: X: 'X' names two tensors"),
        (K + "Y, Z = exp(X)", FormatError, r"line 3, column 10: expected an operator with 2 results \(this one has 1\)"),
        (K + "output X, Q\n}", FormatError, "line 3, column 13: expected the name of a tensor"),
        (K + "}", WorkbenchError, "line 1, column 1: kernel graph: the program has no output"),
        (K + 'Y = exp("X)', FormatError, "line 3, column 11: expected .*found a string without its closing quote"),
        (K + "Y = exp(X) $", FormatError, r"line 3, column 14: expected .*found '\$'"),
        (K + "O = block_graph(X) grid(2) grid(2) {", FormatError, "line 3, column 30: expected 'grid', .*each once"),
        (K + "O = block_graph(X) loop(2, 3) {", FormatError, r"line 3, column 26: expected 1 number in \(\)"),
        (K + "O = block_graph(X) grid(0) {", WorkbenchError, "line 3, column 7: .*positive integers"),
        (B + "save(x)\n", SaverError, "line 5, column 5: output saver of x: a value of the loop body is stored"),
        (B + "a = accumulate mode(x)", FormatError, "line 5, column 20: expected a kind of accumulator"),
        (B + "a = accumulate sum(x, speed=1)", FormatError, "line 5, column 27: expected an attribute of sum, each once"),
        (B + "a = accumulate sum(x)\n    b = add(a, x)", PlaceError, "line 6, column 9: add: an operand of the loop body meets"),
        (B + "y = load(Y)", WorkbenchError, "line 5, column 9: Y: 'Y' is not an operand"),
        (B + "y = load(3)", WorkbenchError, "line 5, column 9: operand 3: there is no operand 3"),
        (B + "y = load(X) imap(w: 0)", FormatError, "line 5, column 22: expected a grid axis x, y or z, each once, found 'w'"),
        (B + "y = load(X) imap(x: 5)", ImapError, "line 5, column 9: .*rank 2"),
        (B + "y: float16[2, 2] strides(2, 1) = exp(x)", FormatError, "line 5, column 8: expected a type without strides"),
        (B + "y = thread_graph(x) {\n input p: float32[2, 2]\n }", FormatError, "line 7, column 2: expected 'output' before it"),
        (
            B + "y = thread_graph(x) {\n input p: float32[2, 2]\n q = sum(p)\n output q }",
            ThreadGraphError,
            "line 8, column 11: q: sum is a reduction",
        ),
        (
            B + "y = thread_graph(x, x) {\n input p: float32[2, 2]\n q = exp(p)\n output q }",
            ThreadGraphError,
            "line 5, column 9: .*takes 1 operands, got 2",
        ),
        (B + "}\n  output O\n}", SaverError, "line 3, column 7: block graph: the block graph stores nothing"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_line_and_column(source: str, error: type[WorkbenchError], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        parse_graph(source)
    assert "\n" not in str(caught.value)
