"""What every cost model must do, whatever it assumes: the analytic and calibrated presets, and the course's roofline.

A new model gets these tests by an entry in `MODELS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from workbench import programs
from workbench.cost import rules
from workbench.cost.breakdown import Cost
from workbench.cost.course import course_cost
from workbench.cost.estimate import estimate, expanded
from workbench.cost.hardware import Hardware, hardware, hardware_names
from workbench.cost.presets import preset, preset_names
from workbench.errors import MissingRuleError
from workbench.ops.registry import operators
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph

Model = Callable[[KernelGraph], Cost]
H200 = hardware("h200")
MODELS: dict[str, Model] = {
    **{name: lambda graph, name=name: estimate(graph, hardware=H200, preset=preset(name)) for name in preset_names()},  # type: ignore[misc]
    "course": course_cost,
}
GRAPHS = [(name, number) for name in programs.names() for number in range(len(programs.known_good(name)))]


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Model:
    return MODELS[request.param]


@pytest.mark.parametrize("name", programs.names())
def test_totals_are_the_sums_of_their_parts(model: Model, name: str) -> None:
    for graph in (programs.get(name), *programs.known_good(name)):
        cost = model(graph)
        assert cost.kernels
        assert cost.total_us == sum(cost.parts.values())
        assert cost.total_us == pytest.approx(sum(kernel.total_us for kernel in cost.kernels), rel=1e-12)
        for kernel in cost.kernels:
            assert kernel.total_us == sum(kernel.parts.values())
            assert all(part >= 0 for part in kernel.parts.values())
            assert kernel.parts["launch"] > 0
        assert f"{cost.total_us:.2f} us" in cost.describe()
        assert cost.to_json()["total_us"] == cost.total_us


@pytest.mark.parametrize("name", ["rms_norm_linear", "gated_mlp", "lora", "gqa_decode", "gqa", "ntrans", "softmax"])
def test_more_work_is_not_cheaper(model: Model, name: str) -> None:
    batch = programs.get(name).inputs[0].shape
    small = model(programs.get(name))
    large = model(programs.get(name, batch=8 * max(batch[0], 2)))
    assert large.total_us >= small.total_us


def test_the_same_graph_costs_the_same(model: Model) -> None:
    first, second = (model(programs.known_good("gqa")[0]) for _ in range(2))
    assert first.parts == second.parts


@pytest.mark.parametrize("level", ["kernel", "block"])
def test_an_operator_without_a_rule_is_an_error(model: Model, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = KernelBuilder()
    x = kernel.input("X", (64, 48))
    if level == "kernel":
        kernel.output(kernel.apply("exp", x))
    else:
        block = kernel.block(x, grid=(4,))
        block.save(block.apply("exp", block.load(x, imap=(0,))), omap=(0,))
        kernel.output(*block.finish())
    graph = kernel.build()
    assert model(graph).total_us > 0
    without = {name: rule for name, rule in rules._RULES.items() if name != "exp"}
    monkeypatch.setattr(rules, "_RULES", without)
    with pytest.raises(MissingRuleError, match="'exp'"):
        model(graph)


def test_rules_are_total_over_the_primitives() -> None:
    primitives = {spec.name for spec in operators() if spec.expand is None}
    assert rules._RULES.keys() == primitives | {"mean"}  # a mean over tiles that end early stays whole
    for name, number in GRAPHS:
        for node in expanded(programs.known_good(name)[number]).graph_defined:
            assert all(rules.rule_of(inner.op) for inner in node.block.nodes if hasattr(inner, "op"))


def faster(**changes: float) -> Hardware:
    return replace(H200, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", preset_names())
@pytest.mark.parametrize(
    "change",
    [
        {"measured_memory_tb_s": 9.28},
        {"l2_tb_s": 20.0},
        {"measured_tensor_tflops": 1322.0},
        {"fp32_lanes": 256},
        {"special_lanes": 32},
        {"shared_bytes_per_cycle": 256},
        {"measured_launch_us": 0.6},
    ],
)
def test_a_faster_gpu_is_not_slower(name: str, change: dict[str, float]) -> None:
    chosen = preset(name)
    for program in programs.names():
        graph = programs.known_good(program)[0]
        before = estimate(graph, hardware=H200, preset=chosen).total_us
        assert estimate(graph, hardware=faster(**change), preset=chosen).total_us <= before * (1 + 1e-12)


@pytest.mark.parametrize("chip", hardware_names())
def test_every_gpu_prices_every_known_good_graph(chip: str) -> None:
    for name, number in GRAPHS:
        assert estimate(programs.known_good(name)[number], hardware=hardware(chip)).total_us > 0
