"""Stable forms among the candidates: marked, verified, and safe where logits are large."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import workbench as wb
from workbench.pipeline.result import Result
from workbench.pipeline.stable import ORIGIN, without_maxima
from workbench.pipeline.superoptimize import Options, superoptimize
from workbench.search.space import Space
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.verify.compare import verify

SIZES: dict[str, Any] = {"heads": 1, "rows": 32, "head_dim": 32, "context": 256}
SPACE = Space(max_block_ops=8)


def stable_forms(result: Result) -> list[KernelGraph]:
    return [one.graph for one in result.candidates if one.origin == ORIGIN]


def survives(graph: KernelGraph, program: KernelGraph) -> bool:
    """Return whether a graph is right where exponentials of the logits alone leave the range of float64."""
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(tensor.shape) for tensor in program.inputs]
    arrays[0] *= 2000.0 / np.abs(arrays[0] @ arrays[1]).max()
    logits = arrays[0] @ arrays[1]
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    right = weights / weights.sum(axis=-1, keepdims=True) @ arrays[2]
    with np.errstate(all="ignore"):
        (found,) = wb.evaluate(graph, arrays)
    return bool(np.allclose(found, right, rtol=1e-6, atol=1e-9))


def test_stable_forms_are_offered_when_asked_for(tmp_path: Path) -> None:
    program = wb.programs.get("gqa", **SIZES)
    options = Options(space=SPACE, keep=12, stable=True)
    result = superoptimize(program, measure=False, out=tmp_path, options=options)
    forms = stable_forms(result)
    assert forms
    for graph in forms:
        assert survives(graph, program)
    unsafe = [one.graph for one in result.candidates if one.origin == "search"]
    assert unsafe
    assert not survives(unsafe[0], program)  # what the rewrite is for
    assert all(one.certificate.kind == "equal" for one in result.candidates)


def test_a_program_that_subtracts_its_maximum_gets_stable_forms_without_asking(tmp_path: Path) -> None:
    program = wb.programs.get("attention_safe", **SIZES)
    # rows this short fit a block whole, and six forms that hold them so are ahead by the model
    result = superoptimize(program, measure=False, out=tmp_path, options=Options(space=SPACE, keep=12))
    forms = stable_forms(result)
    assert forms
    assert all("max" in graph.describe() for graph in forms)  # a maximum, or a running one
    for graph in forms:
        assert survives(graph, program)


def test_maxima_are_left_out_only_where_nothing_else_needs_them() -> None:
    bare = without_maxima(wb.programs.get("attention_safe", **SIZES))
    assert bare is not None
    assert [node.op for node in bare.nodes if hasattr(node, "op")] == ["matmul", "exp", "sum", "div", "matmul"]
    assert verify(wb.programs.get("attention_safe", **SIZES), bare).kind == "equal"
    assert without_maxima(wb.programs.get("gqa", **SIZES)) is None

    def difference_too(X: Any) -> Any:
        shifted = X - wb.max(X, axis=-1)
        return wb.exp(shifted) / wb.sum(wb.exp(shifted), axis=-1) + shifted

    assert without_maxima(wb.trace(difference_too, X=(4, 8))) is None

    def unnormalised(X: Any) -> Any:
        return wb.exp(X - wb.max(X, axis=-1))

    assert without_maxima(wb.trace(unnormalised, X=(4, 8))) is None  # the factor does not cancel: not equal
