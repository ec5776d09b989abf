"""Timing on a GPU: right kernels get a time, and each way to look fast is caught on the device itself; peers run and agree."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.codegen.cuda.launch_shape import LaunchShape
from workbench.device import traps
from workbench.device.ceilings import measure_ceilings
from workbench.device.check_inputs import CheckCase, make_cases
from workbench.device.compile import compile_cubin
from workbench.device.contenders import Contender, Launch, TimingReport, contender_of
from workbench.device.executable import compile
from workbench.device.launch import ArrayParameter, LoadedKernel, load_cupy
from workbench.device.machine import read_machine
from workbench.device.peers import EAGER, SDPA_FLASH, find_peers
from workbench.device.timing import TimingOptions, time_contenders
from workbench.device.timing_gpu import CupyGpu
from workbench.device.traps import HardwareLimit

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180)]
EXTENT = 1024
PROGRAM = wb.trace(lambda X: X * 2, X=(EXTENT, EXTENT), dtype="float32")
QUICK = TimingOptions(rounds=2, round_s=0.002, sets=8)


@pytest.fixture(scope="module")
def cases() -> tuple[CheckCase, ...]:
    return make_cases(PROGRAM, seed=1)


def kernel(body: str, device: str) -> LoadedKernel:
    """Return y = f(x) on a million floats, and z, kept from launch to launch."""
    source = f"""
extern "C" __global__ void __launch_bounds__(256) k(float* x, float* y, float* z) {{
  const int i = blockIdx.x * 256 + threadIdx.x;
  {body}
}}
"""
    shape = (EXTENT, EXTENT)
    launch = LaunchShape(kernel="k", grid=(EXTENT * EXTENT // 256, 1, 1), threads=256, shared_bytes=0)
    parameters = [ArrayParameter(name, "float32", shape, None, name == "y") for name in "xyz"]
    return LoadedKernel(compile_cubin(source, device), launch, parameters)


def contender(name: str, body: str, device: str, stream_of: Callable[[int], int] = lambda stream: stream) -> Contender:
    cupy, loaded = load_cupy(), kernel(body, device)

    def prepare(inputs: Sequence[Any], outputs: Sequence[Any], stream: int) -> Launch:
        kept = cupy.zeros((EXTENT, EXTENT), cupy.float32)
        go = loaded.prepare(inputs[0], outputs[0], kept, stream=stream_of(stream))

        def launch() -> Sequence[Any]:
            go()
            return outputs

        return launch

    return Contender(name=name, prepare=prepare)


def timed(cases: Sequence[CheckCase], *contenders: Contender, limit: HardwareLimit | None = None) -> TimingReport:
    return time_contenders(PROGRAM, contenders, cases, CupyGpu(), limit=limit, options=QUICK)


CHEATS = {
    traps.NO_OP: "",
    traps.MUTATED_INPUT: "y[i] = 2.0f * x[i]; if (i == 70000) x[i] = 0.25f;",
    traps.CACHED_RESULT: "if (z[i] == 0.0f) z[i] = 2.0f * x[i] + 1e-30f; y[i] = z[i];",
    traps.NAN_OUTPUT: "y[i] = i == 12345 ? __int_as_float(0x7fc00000) : 2.0f * x[i];",
    traps.WRONG_RESULT: "y[i] = (i / 1024 == 77 ? 2.01f : 2.0f) * x[i];",
}


@pytest.mark.parametrize("trap", CHEATS)
def test_cheats_are_caught(trap: str, cases: Sequence[CheckCase], device: str) -> None:
    honest = contender("honest", "y[i] = 2.0f * x[i];", device)
    report = timed(cases, honest, contender("cheat", CHEATS[trap], device))
    refusal = report.refusal("cheat")
    assert refusal is not None
    assert refusal.trap == trap, refusal
    assert report.timing("honest") is not None, report.describe()


def test_work_on_another_stream_is_caught(cases: Sequence[CheckCase], device: str) -> None:
    side = load_cupy().cuda.Stream(non_blocking=True)
    report = timed(cases, contender("cheat", "y[i] = 2.0f * x[i];", device, lambda stream: int(side.ptr)))
    refusal = report.refusal("cheat")
    assert refusal is not None
    assert refusal.trap == traps.SIDE_STREAM, refusal


def test_an_impossible_time_is_refused(cases: Sequence[CheckCase], device: str) -> None:
    limit = HardwareLimit(bytes=8 << 20, flops=1, bytes_per_s=1e9, flops_per_s=1e12)  # a memory of 1 GB/s
    report = timed(cases, contender("ours", "y[i] = 2.0f * x[i];", device), limit=limit)
    refusal = report.refusal("ours")
    assert refusal is not None
    assert refusal.trap == traps.TOO_FAST


def test_cold_times_are_those_of_device_memory(cases: Sequence[CheckCase], device: str) -> None:
    report = timed(cases, contender("ours", "y[i] = 2.0f * x[i];", device))
    timing = report.timing("ours")
    assert timing is not None
    assert 0 < timing.warm_us <= timing.cold_us * 1.1
    bandwidth = 2 * 4 * EXTENT * EXTENT / timing.cold_us * 1e-6  # TB/s
    assert 0.2 < bandwidth < 20, report.describe()
    assert 0.1 < report.node_us < 20


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_peers_are_right_and_timed_beside_ours(device: str) -> None:
    sizes: dict[str, Any] = {"heads": 2, "rows": 64, "head_dim": 64, "context": 512}
    program = wb.programs.get("qk_norm_attention", **sizes)
    ours = compile(wb.programs.known_good("qk_norm_attention", **sizes)[0], device)
    peers = find_peers(program, device=device, names=(EAGER, SDPA_FLASH), tolerance=6e-3)
    report = time_contenders(
        program, [contender_of(ours), *peers.contenders], make_cases(program, seed=2), CupyGpu(), options=QUICK
    )
    assert {timing.name for timing in report.timings} == {"ours", EAGER, SDPA_FLASH}, report.describe()


def test_checksums_see_every_byte() -> None:
    cupy, gpu = load_cupy(), CupyGpu()
    size = 8 * (3 * 65536 + 17)
    address = gpu.allocate(size)
    gpu.write(address, cupy.random.randint(0, 255, size, dtype=cupy.uint8).get())
    before = gpu.checksum(address, size)
    assert gpu.checksum(address, size) == before
    for offset in (0, 8 * 65536 + 3, size - 1):
        byte = gpu.read(address + offset, 1)
        gpu.write(address + offset, np.bitwise_xor(byte, np.uint8(0x10)))
        assert gpu.checksum(address, size) != before
        gpu.write(address + offset, byte)
    assert gpu.checksum(address, size) == before
    gpu.free()


def test_the_machine_is_told_and_its_ceilings_are_plausible() -> None:
    machine = read_machine()
    assert machine.gpu
    assert machine.versions["cupy"]
    ceilings = measure_ceilings()
    assert 0.1 < ceilings.read_tb_s < 20
    assert 5 < ceilings.product_tflops < 5000
