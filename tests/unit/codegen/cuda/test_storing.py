"""Values left on chip: computed operands in shared memory are zero beyond their extents, fragments are handed over."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.codegen.cuda.emitting import check_graph
from tests.unit.codegen.cuda.planned import attention, block_graph, node_of
from workbench.codegen.cuda.kernel import emit_block
from workbench.core.dtypes import DType
from workbench.ugraph.builder import BlockBuilder


def exponential_on_the_right(block: BlockBuilder) -> None:
    """exp(0) is 1, so padding that is not cleared would be added up."""
    block.save(block.load(0) @ block.apply("exp", block.load(1)))


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32], ids=lambda dtype: dtype.value)
@pytest.mark.parametrize(("m", "k", "n"), [(5, 7, 9), (16, 20, 8), (17, 33, 24)])
def test_padding_of_a_computed_operand_is_zero(m: int, k: int, n: int, dtype: DType, host_cache: Path) -> None:
    graph = block_graph(exponential_on_the_right, (m, k), (k, n), dtype=dtype)
    check_graph(graph, host_cache)


def test_a_computed_operand_that_ends_early(host_cache: Path) -> None:
    def fill(block: BlockBuilder) -> None:
        right = block.apply("exp", block.load(1, fmap=0))
        block.save(block.accumulate(block.load(0, fmap=1) @ right))

    check_graph(block_graph(fill, (5, 50), (50, 9), loop=3), host_cache)


def test_a_computed_operand_read_as_its_transpose(host_cache: Path) -> None:
    def fill(block: BlockBuilder) -> None:
        right = block.apply("transpose", block.apply("silu", block.load(1)))
        block.save(block.load(0) @ right)

    check_graph(block_graph(fill, (16, 24), (40, 24)), host_cache)


def test_fragments_are_handed_over_without_shared_memory(host_cache: Path) -> None:
    graph = block_graph(attention, (32, 32), (32, 128), (128, 32), loop=2, dtype=DType.BFLOAT16)
    kernel = emit_block(node_of(graph))
    assert "accumulators_to_a<bf16>" in kernel.body
    assert not any("shared memory as" in note for note in kernel.notes)
    check_graph(graph, host_cache)
