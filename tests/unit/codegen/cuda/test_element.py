"""One element at a time: C expressions of operators, offsets that fit, statements no deeper in the nest than they must."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from tests.unit.codegen.cuda.emitting import check_graph
from tests.unit.codegen.cuda.planned import block_graph, node_of
from workbench.codegen.cuda.element import EXACT, FAST, offset_text, scalar_text
from workbench.codegen.cuda.emitters import EMITTERS
from workbench.codegen.cuda.kernel import emit_block
from workbench.core.dtypes import DType
from workbench.ops.registry import operators
from workbench.ops.spec import OpKind
from workbench.ugraph.builder import BlockBuilder

ELEMENTWISE = [spec.name for spec in operators() if spec.kind is OpKind.ELEMENTWISE and isinstance(spec.scalar_c, str)]


def test_expressions() -> None:
    assert scalar_text("add", ["a", "b"], {}, fast=False) == "(a + b)"
    assert scalar_text("exp", ["a"], {}, fast=False) == "expf(a)"
    assert scalar_text("exp", ["a"], {}, fast=True) == "fast_exp(a)"
    assert scalar_text("maximum", ["a", "b"], {}, fast=False) == "maximum(a, b)"
    assert "0.333333343f" in scalar_text("scale", ["a"], {"factor": Fraction(1, 3)}, fast=False)


def test_shortcuts_are_of_operators_that_there_are() -> None:
    assert set(FAST) | set(EXACT) <= set(EMITTERS)


@pytest.mark.parametrize("fast", [False, True])
def test_every_expression_is_closed(fast: bool) -> None:
    for name in ELEMENTWISE:
        attributes = dict.fromkeys(("factor", "lo", "hi", "exponent", "eps"), Fraction(1, 3))
        text = scalar_text(name, ["a", "b"], dict(attributes), fast=fast)
        assert text.count("(") == text.count(")"), name
        assert "{" not in text, name


def test_offsets_are_wide_where_they_must_be() -> None:
    assert offset_text(["row", "col"], (64, 1), (8, 64)) == "row * 64 + col"
    assert offset_text(["row", "(col + e)"], (2**16, 1), (2**16, 8)) == "(i64)row * 65536 + (i64)(col + e)"
    assert offset_text(["0", "0"], (64, 1), (8, 64)) == "0"


def test_what_a_row_shares_is_computed_once_a_row() -> None:
    """exp of a column vector stands before the loop over columns."""

    def fill(block: BlockBuilder) -> None:
        block.save(block.load(0) * block.apply("exp", block.load(1)))

    body = emit_block(node_of(block_graph(fill, (8, 4096), (8, 1)))).body
    assert body.index("fast_exp") < body.index("int col")


def test_common_values_are_computed_once(host_cache: Path) -> None:
    def fill(block: BlockBuilder) -> None:
        e = block.apply("exp", block.load(0))
        block.save(e * e + e)

    graph = block_graph(fill, (8, 64), dtype=DType.FLOAT32)
    assert emit_block(node_of(graph)).body.count("expf(") == 1
    check_graph(graph, host_cache)


def test_branches_of_a_concatenation_read_only_their_piece(host_cache: Path) -> None:
    """Each piece is read within its own bounds, which the host checks."""

    def fill(block: BlockBuilder) -> None:
        joined = block.apply("concat", block.load(0), block.load(1), block.load(2), axis=-1)
        block.save(block.apply("exp", joined) + joined)

    check_graph(block_graph(fill, (5, 3), (5, 10), (5, 1), dtype=DType.FLOAT32), host_cache)
