"""Outputs in device memory: wide where they lie together, only elements that exist, whatever their strides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.unit.codegen.cuda.emitting import check_graph, hard_inputs, run_kernel
from tests.unit.codegen.cuda.planned import block_graph, node_of
from workbench.codegen.cuda.kernel import emit_block
from workbench.core.dtypes import DType
from workbench.core.layouts import Strides
from workbench.interpret.floats import evaluate
from workbench.ugraph.builder import BlockBuilder
from workbench.ugraph.nodes import GraphDefinedNode


def doubled(block: BlockBuilder) -> None:
    block.save(block.load(0, imap=(0,)) * 2, omap=(0,))


def with_strides(node: GraphDefinedNode, strides: Strides) -> GraphDefinedNode:
    """The same node, its result laid out otherwise."""
    return replace(node, results=(replace(node.results[0], strides=strides),))


@pytest.mark.parametrize(
    ("strides", "is_wide"),
    [((64, 1), True), ((72, 1), True), ((65, 1), False), ((1, 12), False), ((128, 2), False), ((1, 13), False)],
)
def test_any_strides(strides: Strides, is_wide: bool, host_cache: Path) -> None:
    graph = block_graph(doubled, (12, 64), grid=(5,))
    kernel = emit_block(with_strides(node_of(graph), strides))
    assert ("register_to_global(" in kernel.body) is is_wide
    inputs = hard_inputs(graph)
    (found,), _ = run_kernel(kernel, inputs, host_cache)
    np.testing.assert_allclose(found, evaluate(graph, inputs)[0], rtol=1e-3)


def test_edges_are_written_element_by_element(host_cache: Path) -> None:
    """Columns cut in parts of 24 of which the last has 2: groups of eight end inside."""

    def fill(block: BlockBuilder) -> None:
        block.save(block.load(0, imap=(1,)) * 2, omap=(1,))

    graph = block_graph(fill, (40, 48 + 2), grid=(3,))
    check_graph(graph, host_cache)


def test_a_result_of_a_product_is_written_from_fragments(host_cache: Path) -> None:
    graph = block_graph(lambda b: b.save(b.load(0) @ b.load(1)), (64, 32), (32, 64))
    assert "_tile.at(row, col)" not in emit_block(node_of(graph)).body
    check_graph(graph, host_cache)


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32], ids=lambda dtype: dtype.value)
def test_numbers_are_rounded_once(dtype: DType, host_cache: Path) -> None:
    graph = block_graph(lambda b: b.save(b.load(0) / 3), (4, 64), dtype=dtype)
    check_graph(graph, host_cache)
