"""Cutting a program into LAX parts and joining them again."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.errors import ResultMismatchError, UsageError
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.lax import join_parts, split_lax


def inputs_of(program: KernelGraph) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.uniform(0.2, 0.9, tensor.shape) for tensor in program.inputs]


def two_softmaxes() -> KernelGraph:
    return wb.trace(lambda X, W: wb.softmax(wb.softmax(X @ W) @ W), X=(4, 6), W=(6, 6))


@pytest.mark.parametrize("name", ["rms_norm_linear", "gated_mlp", "lora", "gqa", "ntrans", "qk_norm_attention"])
def test_a_program_with_one_exponential_on_every_path_is_one_part(name: str) -> None:
    program = wb.programs.get(name)
    parts = split_lax(program)
    assert len(parts) == 1
    assert parts[0].is_lax
    assert join_parts(program, parts, [parts[0].graph]).hash == program.hash


def test_it_is_cut_before_the_second_exponential() -> None:
    program = two_softmaxes()
    first, second = split_lax(program)
    assert "second exponential" in second.reason
    assert first.is_lax
    assert second.is_lax
    assert [node.results[0].name for node in second.graph.nodes] == [program.nodes[-1].results[0].name]


def test_an_operator_without_meaning_in_a_field_is_a_part_of_its_own() -> None:
    program = wb.trace(lambda X, W: wb.gelu(X @ W) @ W, X=(4, 6), W=(6, 6))
    parts = split_lax(program)
    assert [part.is_lax for part in parts] == [True, False, True]
    assert "no closed form" in parts[1].reason


@pytest.mark.parametrize("size", [1, 2, 3, None])
def test_joined_again_it_computes_the_same(size: int | None) -> None:
    program = wb.trace(
        lambda X, W, V: (wb.log(wb.softmax(X @ W) + 1.0) @ V, wb.softmax(wb.exp(X) @ W), wb.relu(V) @ V),
        X=(4, 6), W=(6, 6), V=(6, 6),
    )  # fmt: skip
    parts = split_lax(program, max_operators=size)
    if size is not None:
        assert all(len(part.graph.nodes) <= size for part in parts)
    joined = join_parts(program, parts, [part.graph for part in parts])
    arrays = inputs_of(program)
    for ours, theirs in zip(wb.evaluate(joined, arrays), wb.evaluate(program, arrays), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_parts_may_be_computed_by_block_graphs_with_names_of_their_own() -> None:
    program = two_softmaxes()
    parts = split_lax(program)
    kernel = wb.KernelBuilder("first")
    a, b = (kernel.input(f"t{i}", tensor.shape) for i, tensor in enumerate(parts[0].graph.inputs))
    block = kernel.block(a, b, grid=(2,))
    x, w = block.load(a, imap=(0,)), block.load(b)
    block.save(wb.matmul(wb.softmax(x @ w), w), omap=(0,))
    kernel.output(*block.finish())
    joined = join_parts(program, parts, [kernel.build(), parts[1].graph])
    assert len(joined.graph_defined) == 1
    arrays = inputs_of(program)
    np.testing.assert_allclose(wb.evaluate(joined, arrays)[0], wb.evaluate(program, arrays)[0], rtol=1e-12)


def test_unrelated_outputs_are_parts_of_their_own() -> None:
    program = wb.trace(lambda X, Y: (wb.exp(X), Y @ Y), X=(4, 6), Y=(5, 5))
    assert len(split_lax(program)) == 2


def test_the_one_part_of_a_program_is_the_program_itself() -> None:
    """Inputs that nothing reads, outputs in another order than they are made, twice, or handed through."""
    program = wb.trace(
        lambda X, W, U: (lambda y: (wb.exp(y), X, y, y))(X @ W), X=(4, 6), W=(6, 6), U=(3,)
    )  # fmt: skip
    (part,) = split_lax(program)
    assert part.is_lax
    assert part.graph == program


def test_what_makes_no_sense_is_refused() -> None:
    program = two_softmaxes()
    with pytest.raises(UsageError, match="at least 1"):
        split_lax(program, max_operators=0)
    with pytest.raises(UsageError, match="block graphs"):
        split_lax(wb.programs.known_good("gqa")[0])
    parts = split_lax(program)
    with pytest.raises(ResultMismatchError, match="2 parts, 1 graphs"):
        join_parts(program, parts, [parts[0].graph])
    with pytest.raises(ResultMismatchError, match="part 1"):
        join_parts(program, parts, [parts[0].graph, wb.trace(lambda X: wb.exp(X), X=(3, 6))])
