"""No schedule of a structure is below its bound, and the bound holds what every schedule must pay."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.property.strategies import Options, kernel_graphs
from tests.unit.cost.example_graphs import split_attention
from workbench import programs
from workbench.cost.candidates import ScheduleLimits
from workbench.cost.estimate import estimate, features, predefined_features
from workbench.cost.hardware import hardware
from workbench.cost.presets import preset
from workbench.cost.schedules import ScheduleSpace
from workbench.cost.structure_bound import ROUNDING, structure_bound
from workbench.errors import MissingRuleError, NotApplicableError
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph

H200 = hardware("h200")
FEW = ScheduleLimits(
    tiles=(8, 16, 64, 128), depths=(32, 64, 128), splits=(1, 2, 3, 8), stages=(2, 4), threads=(128, 256)
)


def check(graph: KernelGraph, cold: bool) -> None:
    chosen = preset("calibrated")
    space = ScheduleSpace(graph, hardware=H200, preset=chosen, limits=FEW, cold=cold)
    bound = structure_bound(graph, H200, chosen, cold=cold)
    assert 0 < bound <= space.least_us
    assert all(space.least_us <= row.cost_us for row in space.best(3))


@pytest.mark.parametrize("cold", [True, False])
@pytest.mark.parametrize("name", programs.names())
def test_no_schedule_is_below_the_bound(name: str, cold: bool) -> None:
    for graph in programs.known_good(name):
        check(graph, cold)


@settings(max_examples=25, deadline=None)
@given(kernel_graphs(Options(max_steps=5)))
def test_none_of_random_graphs_is(graph: KernelGraph) -> None:
    try:
        check(graph, cold=True)
    except (NotApplicableError, MissingRuleError):
        return


def mixed() -> KernelGraph:
    """Return a product of the library, a block graph over it, and a norm by rule over that, one result given twice."""
    kernel = KernelBuilder()
    x, w = kernel.input("X", (64, 128)), kernel.input("W", (128, 256))
    product = kernel.apply("matmul", x, w)
    block = kernel.block(product, grid=(64,))
    block.save(block.apply("exp", block.load(product, imap=(0,))), omap=(0,))
    (result,) = block.finish(names=["E"])
    kernel.output(kernel.apply("rms_norm", result), result, result)
    return kernel.build()


def test_predefined_kernels_count_what_they_count_beside_the_launches() -> None:
    graph = mixed()
    every, found = features(graph, H200).kernels, predefined_features(graph, H200).kernels
    assert [kernel for kernel in every if kernel[0] != "E"] == list(found)
    assert len(found) == len(every) - 1 == 3  # product, norm, copy
    assert any(counts["made_bytes"] for _, counts in found)
    check(graph, cold=True)


def test_splits_that_tie_kernels_are_left_aside() -> None:
    graph = split_attention(2, 32, 64, 512, split=2, loop=2)
    space = ScheduleSpace(graph, hardware=H200, limits=FEW)
    assert space.least_us == sum(float(table.cost_us.min()) for table in space.kernels)
    assert space.least_us <= space.best(1)[0].cost_us
    check(graph, cold=True)


def test_a_copy_of_many_bytes_costs_its_bytes_and_predefined_kernels_what_they_cost() -> None:
    chosen = preset("analytic")
    kernel = KernelBuilder()
    x, dead = kernel.input("X", (8192, 8192)), kernel.input("Y", (8192, 8192))
    block = kernel.block(x, dead, grid=(8192,))
    block.load(dead, imap=(0,))  # no result needs it
    block.save(block.apply("exp", block.load(x, imap=(0,))), omap=(0,))
    kernel.output(*block.finish())
    moved = 2 * 2 * 8192 * 8192
    launch = H200.node_us + chosen.coefficients.start_us
    rate = H200.bandwidth_tb_s * 1e6 * chosen.coefficients.memory_efficiency
    found = structure_bound(kernel.build(), H200, chosen)
    assert found == pytest.approx(launch + moved / rate, rel=2 * ROUNDING)
    assert structure_bound(kernel.build(), H200, chosen, cold=False) == pytest.approx(
        launch + moved / 2 / rate, rel=2 * ROUNDING
    )  # the input may lie in the L2 cache
    program = programs.get("gqa")
    assert structure_bound(program, H200, chosen) == pytest.approx(
        estimate(program, hardware=H200, preset=chosen).total_us, rel=2 * ROUNDING
    )
