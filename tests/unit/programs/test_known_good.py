"""The literature's µGraphs compute what their programs compute, at the benchmarks' sizes and at odd ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.programs.closed_forms import closed_form, hard_inputs, relative_error
from tests.unit.programs.test_registry import ALL, ROWS, sizes
from workbench import programs
from workbench.interpret import evaluate
from workbench.programs.tiling import SHARED_MEMORY_LIMIT, fits, shared_bytes_at_most
from workbench.ugraph.kernel_graph import KernelGraph

STYLES = ["standard", "mirage"]

ODD = [
    ("rms_norm_linear", {"batch": 7, "hidden": 100, "out": 33}),
    ("rms_norm_linear", {"batch": 1, "hidden": 1, "out": 1}),
    ("rms_norm_linear", {"batch": 70, "hidden": 131, "out": 129}),
    ("gated_mlp", {"batch": 7, "hidden": 100, "out": 33}),
    ("gated_mlp", {"batch": 65, "hidden": 257, "out": 131}),
    ("gated_mlp_down", {"batch": 7, "hidden": 100, "inner": 67, "out": 33}),
    ("gated_mlp_down", {"batch": 1, "hidden": 300, "inner": 1, "out": 129}),
    ("lora", {"batch": 7, "hidden": 100, "out": 33, "rank": 5}),
    ("lora", {"batch": 65, "hidden": 263, "out": 131, "rank": 1}),
    ("gqa", {"batch": 3, "heads": 2, "rows": 7, "head_dim": 33, "context": 100}),
    ("gqa", {"batch": 1, "heads": 1, "rows": 130, "head_dim": 128, "context": 701}),
    ("gqa", {"batch": 1, "heads": 1, "rows": 1, "head_dim": 1, "context": 1}),
    ("mha", {"batch": 64, "heads": 3, "rows": 2, "head_dim": 16, "context": 37}),
    ("mqa", {"rows": 67, "head_dim": 128, "context": 515}),
    ("gqa_decode", {"rows": 3, "head_dim": 256, "context": 1027}),
    ("gqa_decode", {"heads": 1, "rows": 2, "head_dim": 2048, "context": 130}),
    ("qk_norm_attention", {"batch": 3, "rows": 7, "head_dim": 33, "context": 100}),
    ("qk_norm_attention", {"rows": 5, "head_dim": 128, "context": 701}),
    ("ntrans", {"batch": 7, "hidden": 33}),
    ("ntrans", {"batch": 3, "hidden": 40_001}),  # three kernels
    ("softmax", {"batch": 7, "hidden": 33}),
    ("softmax", {"batch": 140, "hidden": 70_001}),  # two kernels
    ("attention_safe", {"batch": 3, "rows": 7, "head_dim": 33, "context": 100}),
    ("attention_safe", {"rows": 67, "head_dim": 128, "context": 131}),
    ("moe_expert", {"experts": 3, "rows": 7, "hidden": 100, "inner": 33, "out": 65}),
]
HEAVY = {"mha", "moe_expert", "gated_mlp_down"}  # at the default sizes; the smaller ones below stand for them


def check(name: str, style: str, given: dict[str, Any], rng: np.random.Generator) -> list[KernelGraph]:
    """Compare every known good graph with the closed form on inputs whose rows differ in scale."""
    program = programs.get(name, style=style, **given)
    graphs = programs.known_good(name, style=style, **given)
    assert graphs
    inputs = hard_inputs(program, rng)
    expected = closed_form(name, style, inputs)
    for graph in graphs:
        assert graph.inputs == program.inputs
        assert graph.outputs == program.outputs
        assert graph.graph_defined
        assert fits(graph)
        (found,) = evaluate(graph, inputs)
        assert relative_error(found, expected) < 1e-11
    return graphs


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(("name", "given"), ODD)
def test_odd_sizes(name: str, given: dict[str, Any], style: str, rng: np.random.Generator) -> None:
    check(name, style, given, rng)


@pytest.mark.parametrize("name", [name for name in ALL if name not in HEAVY])
def test_default_sizes(name: str, rng: np.random.Generator) -> None:
    check(name, "standard", {}, rng)


@pytest.mark.parametrize("name", ["rms_norm_linear", "qk_norm_attention", "ntrans"])
def test_default_sizes_in_the_style_of_mirage(name: str, rng: np.random.Generator) -> None:
    check(name, "mirage", {}, rng)


@pytest.mark.parametrize(("name", "given", "shapes"), ROWS)
@pytest.mark.parametrize("style", STYLES)
def test_every_row_of_the_benchmarks_fits(
    name: str, given: dict[str, Any], shapes: list[tuple[int, ...]], style: str
) -> None:
    for graph in programs.known_good(name, style=style, **given):
        for node in graph.graph_defined:
            assert shared_bytes_at_most(node.block) <= SHARED_MEMORY_LIMIT


@pytest.mark.parametrize("batch", [1, 2, 3, 8, 16, 64])
@pytest.mark.parametrize("name", ALL)
def test_any_batch(name: str, batch: int, rng: np.random.Generator) -> None:
    given = sizes(name)
    if "batch" in given:
        check(name, "standard", given | {"batch": batch}, rng)
    else:
        check(name, "standard", given | {"rows": batch}, rng)


def test_two_structures_of_rms_norm() -> None:
    on_x, on_w = programs.known_good("rms_norm_linear")
    block_x, block_w = on_x.graph_defined[0].block, on_w.graph_defined[0].block
    products = [[n.operands for n in block.nodes if getattr(n, "op", "") == "mul"] for block in (block_x, block_w)]
    assert "x" in products[0][0]
    assert "w" in products[1][0]
    assert len(programs.known_good("rms_norm_linear", style="mirage")) == 1  # without a gain there is one


def test_keys_are_split_over_blocks_when_few_groups_leave_the_gpu_idle() -> None:
    split, one = programs.known_good("gqa_decode")
    assert split.graph_defined[0].block.grid_dims == (2, 1, 32)
    assert len(one.graph_defined) == 1
    one, split = programs.known_good("gqa_decode", batch=64)  # 128 groups fill it
    assert (len(one.graph_defined), len(split.graph_defined)) == (1, 2)


def test_partial_sums_are_kept_in_float32() -> None:
    split = programs.known_good("gqa")[0]
    assert [str(tensor.dtype) for tensor in split.graph_defined[0].results] == ["float32", "float32"]


def test_safe_attention_survives_large_logits(rng: np.random.Generator) -> None:
    given: dict[str, Any] = {"heads": 1, "rows": 3, "head_dim": 8, "context": 130}
    inputs = hard_inputs(programs.get("attention_safe", **given), rng)
    inputs[0] = inputs[0] * 3000
    expected = closed_form("attention_safe", "standard", inputs)
    for graph in programs.known_good("attention_safe", **given):
        (found,) = evaluate(graph, inputs)
        assert relative_error(found, expected) < 1e-11
    (unsafe,) = evaluate(programs.known_good("gqa", **given)[0], inputs)
    assert not np.isfinite(unsafe).all()


def test_online_form_has_a_running_maximum_and_the_other_two_kernels() -> None:
    two, online = programs.known_good("attention_safe")
    assert len(two.graph_defined) == 2
    assert [type(node).__name__ for node in online.graph_defined[0].block.nodes].count("RunningMax") == 1


def test_a_wrong_graph_is_told_from_a_right_one(rng: np.random.Generator) -> None:
    given: dict[str, Any] = {"batch": 4, "hidden": 12, "out": 5}
    x, gain, w = hard_inputs(programs.get("rms_norm_linear", **given), rng)
    (found,) = evaluate(programs.known_good("rms_norm_linear", **given)[0], [x, gain, w])
    assert relative_error(found, closed_form("rms_norm_linear", "standard", [x, np.ones(12), w])) > 1e-2
    assert relative_error(np.roll(found, 1, axis=0), closed_form("rms_norm_linear", "standard", [x, gain, w])) > 1e-2


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("rms_norm_linear", {"batch": 7, "hidden": 100, "out": 33}),
        ("gated_mlp", {"batch": 65, "hidden": 257, "out": 131}),
        ("lora", {"batch": 7, "hidden": 100, "out": 33, "rank": 5}),
        ("gqa", {"batch": 64}),
        ("gqa_decode", {"rows": 3, "head_dim": 128, "context": 1027}),
        ("ntrans", {"batch": 7, "hidden": 33}),
        ("attention_safe", {"rows": 67, "head_dim": 128, "context": 131}),
    ],
)
def test_structures_do_not_depend_on_sizes(name: str, given: dict[str, Any]) -> None:
    at_default = {graph.structure_hash for graph in programs.known_good(name)}
    assert {graph.structure_hash for graph in programs.known_good(name, **given)} == at_default
    assert len(at_default) == len(programs.known_good(name))


def test_programs_of_one_formula_have_one_structure() -> None:
    assert len({programs.get(name).structure_hash for name in ("gqa", "mha", "mqa", "gqa_decode")}) == 1
    assert programs.get("gqa").structure_hash == programs.get("gqa", style="mirage").structure_hash
    assert programs.get("gqa").structure_hash != programs.get("qk_norm_attention").structure_hash
