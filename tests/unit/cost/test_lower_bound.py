"""Bounds are compulsory bytes and products over rates, and no cost goes below them."""

from __future__ import annotations

import pytest

from workbench import programs
from workbench.cost.estimate import estimate
from workbench.cost.hardware import hardware, hardware_names
from workbench.cost.lower_bound import lower_bound
from workbench.errors import UsageError
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.tracing import trace

H200 = hardware("h200")


def test_rms_norm_linear_by_hand() -> None:
    bound = lower_bound(programs.get("rms_norm_linear", batch=16, hidden=4096, out=4096), H200)
    nbytes = 2 * (16 * 4096 + 4096 + 4096 * 4096 + 16 * 4096)
    assert bound.bytes == nbytes
    assert bound.memory_us == pytest.approx(nbytes / 4.64e6)
    assert bound.flops == 2 * 16 * 4096 * 4096
    assert bound.compute_us == pytest.approx(bound.flops / 661e6)
    assert bound.total_us == pytest.approx(bound.memory_us + 1.2)
    assert bound.gap(2 * bound.total_us) == pytest.approx(1.0)
    assert "33.8 MB" in bound.describe()
    with pytest.raises(UsageError):
        bound.gap(-1.0)


def test_products_bind_where_they_are_many() -> None:
    bound = lower_bound(trace(lambda X, W: X @ W, X=(4096, 4096), W=(4096, 4096), dtype="float16"), H200)
    assert bound.compute_us > bound.memory_us
    assert bound.total_us == pytest.approx(2 * 4096**3 / 661e6 + 1.2)


@pytest.mark.parametrize("name", programs.names())
@pytest.mark.parametrize("chip", hardware_names())
def test_bounds_hold_compulsory_bytes_and_no_estimate_is_below(name: str, chip: str) -> None:
    gpu = hardware(chip)
    program = programs.get(name)
    bound = lower_bound(program, gpu)
    nbytes = sum(tensor.nbytes for tensor in (*program.inputs, *program.outputs))
    assert bound.bytes == nbytes
    assert bound.total_us >= nbytes / (gpu.memory_tb_s * 1e6)
    assert estimate(program, hardware=gpu).total_us >= bound.memory_us + bound.launch_us
    if chip == "h200":
        for graph in programs.known_good(name):
            cost = estimate(graph, hardware=gpu)
            assert bound.gap(cost.total_us) >= 0


def test_what_nothing_needs_does_not_count() -> None:
    kernel = KernelBuilder()
    x, y = kernel.input("X", (8, 8)), kernel.input("Y", (1024, 1024))
    kernel.apply("exp", y)
    kernel.output(kernel.apply("exp", x))
    assert lower_bound(kernel.build(), H200).bytes == 2 * 2 * 64


def test_an_output_that_is_an_input_is_not_written() -> None:
    kernel = KernelBuilder()
    x = kernel.input("X", (8, 8))
    kernel.output(x, kernel.apply("exp", x))
    assert lower_bound(kernel.build(), H200).bytes == 2 * 2 * 64
