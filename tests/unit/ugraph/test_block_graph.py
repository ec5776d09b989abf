"""Graphs that were put together without a builder are checked all the same."""

from __future__ import annotations

import pytest

from workbench.core.tensors import DeviceTensor, RegisterTensor, SharedTensor
from workbench.errors import (
    AccumulatorError,
    DuplicateNameError,
    OperatorLevelError,
    ResultMismatchError,
    SaverError,
    ThreadGraphError,
    UnknownTensorError,
)
from workbench.ugraph import value as op
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import Accumulator, AccumulatorKind, GraphDefinedNode, InputIterator, OpNode, OutputSaver
from workbench.ugraph.thread_graph import ThreadGraph


def legal_block() -> BlockGraph:
    kernel = KernelBuilder()
    x = kernel.input("I0", (4, 6))
    block = kernel.block(x, grid=(2,), loop=3)
    block.save(block.accumulate(op.exp(block.load(x, imap=(0,), fmap=1))), omap=(0,))
    return block.build()


def test_a_block_graph_put_together_wrongly_is_refused() -> None:
    graph = legal_block()
    loader, exponential, accumulator, saver = graph.nodes
    assert isinstance(loader, InputIterator)
    assert isinstance(accumulator, Accumulator)
    wrong_tile = InputIterator(0, loader.imap, loader.fmap, SharedTensor("i0", (4, 6)))
    with pytest.raises(ResultMismatchError, match=r"recorded tile \(4, 6\) .*the node yields \(2, 2\)"):
        BlockGraph(graph.operands, (wrong_tile, exponential, accumulator, saver), (2,), 3)
    with pytest.raises(UnknownTensorError, match="operand 'i0' is not defined before; define it first; a cycle"):
        BlockGraph(graph.operands, (exponential, loader, accumulator, saver), (2,), 3)
    assert isinstance(exponential, OpNode)
    twice = OpNode("exp", exponential.operands, (*exponential.results, SharedTensor("again", (2, 2))))
    for wrong in (twice, OpNode("exp", exponential.operands, ())):
        with pytest.raises(ResultMismatchError, match="recorded results, the node yields 1; record each, once"):
            BlockGraph(graph.operands, (loader, wrong, accumulator, saver), (2,), 3)
    with pytest.raises(DuplicateNameError, match="'i0' names two tiles"):
        BlockGraph(graph.operands, (loader, *graph.nodes), (2,), 3)
    with pytest.raises(SaverError, match="a value of the loop body is stored"):
        BlockGraph(graph.operands, (loader, OutputSaver("i0", (0, None, None))), (2,), 3)
    with pytest.raises(UnknownTensorError, match="there is no operand 0"):
        BlockGraph((), graph.nodes, (2,), 3)
    bad = Accumulator(AccumulatorKind.RESCALE, accumulator.operand, accumulator.result)
    with pytest.raises(AccumulatorError, match="needs a rescaling factor"):
        BlockGraph(graph.operands, (loader, exponential, bad, saver), (2,), 3)


def test_a_thread_graph_put_together_wrongly_is_refused() -> None:
    p, q, r = (RegisterTensor(name, (2, 3)) for name in "pqr")
    with pytest.raises(ResultMismatchError, match="exp: 0 recorded results, exp yields 1"):
        ThreadGraph((p,), (OpNode("exp", ("p",), ()),), "p")
    with pytest.raises(ResultMismatchError, match="q, r: 2 recorded results, exp yields 1"):
        ThreadGraph((p,), (OpNode("exp", ("p",), (q, r)),), "q")
    with pytest.raises(ThreadGraphError, match="sum: sum is a reduction"):
        ThreadGraph((p,), (OpNode("sum", ("p",), (), (("axis", -1),)),), "p")
    with pytest.raises(ResultMismatchError, match="recorded shape"):
        ThreadGraph((p,), (OpNode("exp", ("p",), (RegisterTensor("q", (3, 2)),)),), "q")


def test_a_kernel_graph_put_together_wrongly_is_refused() -> None:
    x, y = DeviceTensor("X", (2, 3)), DeviceTensor("Y", (2, 3))
    exponential = OpNode("exp", ("X",), (y,))
    graph = KernelGraph((x,), (exponential,), ("Y",))
    assert graph.producer("Y") is exponential
    assert graph.producer("X") is None
    with pytest.raises(UnknownTensorError, match="operand 'Y' is not defined before"):
        KernelGraph((x,), (OpNode("exp", ("Y",), (DeviceTensor("Z", (2, 3)),)), exponential), ("Y",))
    with pytest.raises(ResultMismatchError, match=r"recorded results \(\(3, 2\),\), the node yields \(\(2, 3\),\)"):
        KernelGraph((x,), (OpNode("exp", ("X",), (DeviceTensor("Y", (3, 2)),)),), ("Y",))
    with pytest.raises(OperatorLevelError, match="a result of a kernel is a DeviceTensor"):
        KernelGraph((x,), (OpNode("exp", ("X",), (SharedTensor("Y", (2, 3)),)),), ("Y",))
    with pytest.raises(DuplicateNameError, match="'X' names two tensors"):
        KernelGraph((x, x), (exponential,), ("Y",))
    with pytest.raises(UnknownTensorError, match="output 'Z' is not defined"):
        KernelGraph((x,), (exponential,), ("Z",))
    node = GraphDefinedNode(legal_block(), ("X",), (DeviceTensor("Z", (4, 2)),))
    with pytest.raises(ResultMismatchError, match="the block graph reads"):
        KernelGraph((x,), (node,), ("Z",))
    with pytest.raises(UnknownTensorError, match="no tensor 'Z'; tensors: X, Y"):
        graph.tensor("Z")
