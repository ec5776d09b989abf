"""Programs called with arrays, on a GPU made of host memory whose kernels run through the host shim."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tests.unit.device.hand_made import ADDED, product_and_input, thrice
from tests.unit.device.host_gpu import HostGpu
from workbench.core.dtypes import DType
from workbench.core.layouts import column_major_strides
from workbench.core.tensors import DeviceTensor
from workbench.device import executable as module
from workbench.device.architecture import architecture
from workbench.device.array_kinds import ArrayKind, kind_of, new_array
from workbench.device.executable import Executable, compile_program
from workbench.device.host_copies import HostCopy, as_stored
from workbench.errors import KernelCompileError, LaunchError


def values(*shape: int, dtype: Any = np.float16) -> Any:
    return np.random.default_rng(1).standard_normal(shape).astype(dtype)


def test_numpy_arrays_come_back_as_numpy(gpu: HostGpu, thrice_x: Executable) -> None:
    x = values(3, 70)
    y = thrice_x(x)
    np.testing.assert_array_equal(y, 2 * x + x)
    assert y.dtype == np.float16
    allocated = len(gpu.allocated)
    again = thrice_x(x + x)
    np.testing.assert_array_equal(again, 4 * x + (x + x))
    np.testing.assert_array_equal(y, 2 * x + x)  # results are the caller's own
    assert len(gpu.allocated) == allocated
    assert gpu.waited == [5, 5]
    out = np.zeros((3, 70), np.float16)
    assert thrice_x(x, out=out) is out
    np.testing.assert_array_equal(out, y)


def test_arrays_on_the_device_are_used_where_they_lie(gpu: HostGpu, thrice_x: Executable) -> None:
    tensor = DeviceTensor("t", (3, 70))
    x = gpu.array(values(3, 70), tensor)
    y = thrice_x(x)
    np.testing.assert_array_equal(y.array, 3 * x.array)
    out = gpu.array(0, tensor)
    allocated = len(gpu.allocated)
    assert thrice_x(x, out=out, stream=9) is out
    assert len(gpu.allocated) == allocated
    np.testing.assert_array_equal(out.array, y.array)
    first = thrice_x(x, reuse=True)
    allocated = len(gpu.allocated)
    assert thrice_x(x, reuse=True) is first
    assert len(gpu.allocated) == allocated
    assert gpu.launched[:4] == [("twice", 5), ("added", 5), ("twice", 9), ("added", 9)]
    assert gpu.waited == []


def test_streams_that_share_the_workspace_are_ordered(gpu: HostGpu, thrice_x: Executable) -> None:
    tensor = DeviceTensor("t", (3, 70))
    x, out = gpu.array(values(3, 70), tensor), gpu.array(0, tensor)
    for stream in (1, 1, 2, 2, 1):
        thrice_x(x, out=out, stream=stream)
    assert gpu.orders == [(1, 2), (2, 1)]
    gpu.capturing.add(7)
    thrice_x(x, out=out, stream=7)
    assert gpu.orders == [(1, 2), (2, 1)]  # an event of outside may not be waited for in a capture


def test_prepared_runs_check_once(gpu: HostGpu, thrice_x: Executable) -> None:
    tensor = DeviceTensor("t", (3, 70))
    x, out = gpu.array(values(3, 70), tensor), gpu.array(0, tensor)
    go = thrice_x.prepare(x, out=out, stream=3)
    views = len(x.streams)
    go()
    go()
    assert len(x.streams) == views == 1
    np.testing.assert_array_equal(out.array, 3 * x.array)
    with pytest.raises(LaunchError, match="NumPy arrays are copied by a call"):
        thrice_x.prepare(values(3, 70), out=values(3, 70))


def test_library_products_strides_and_outputs_that_are_inputs(gpu: HostGpu) -> None:
    program, graph = product_and_input()
    both = Executable(graph, program, gpu.compiled(program), "sm_90a")
    x, w = values(2, 3, 5), values(5, 4)
    p, d, same, p2 = both(x, w)
    right = (x.astype(np.float64) @ w.astype(np.float64)).astype(np.float16)
    np.testing.assert_allclose(p, right, rtol=2e-3)
    np.testing.assert_array_equal(d, 2 * x)
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(p2, p)
    assert [name for name, _ in gpu.launched] == ["cublas", "twice"]
    assert len(both.library_calls) == 1
    on_device = [gpu.array(x, both.inputs[0]), gpu.array(w, both.inputs[1])]
    assert on_device[1].array.strides == (2, 10)
    for found, expected in zip(both(*on_device), (p, d, same, p2), strict=True):
        np.testing.assert_array_equal(found.array, expected)
    with pytest.raises(LaunchError, match=r"input 1 \(W\) has strides \(4, 1\)"):
        both(on_device[0], gpu.array(w, DeviceTensor("w", (5, 4))))


def test_arguments_that_do_not_fit_are_named(gpu: HostGpu, thrice_x: Executable) -> None:
    tensor = DeviceTensor("t", (3, 70))
    x, out = gpu.array(values(3, 70), tensor), gpu.array(0, tensor)
    single = gpu.array(0, DeviceTensor("t", (3, 70), DType.FLOAT32))
    with pytest.raises(LaunchError, match=r"thrice takes 1 inputs \(X\), got 2"):
        thrice_x(x, x)
    with pytest.raises(LaunchError, match=r"input 0 \(X\) is float32, the kernel takes float16"):
        thrice_x(single)
    with pytest.raises(LaunchError, match=r"input 0 \(X\) has shape \(70, 3\)"):
        thrice_x(gpu.array(0, DeviceTensor("t", (70, 3))))
    with pytest.raises(LaunchError, match=r"output 0 \(Y\) is float32"):
        thrice_x(x, out=single)
    with pytest.raises(LaunchError, match="1 outputs, `out` gives 2"):
        thrice_x(x, out=[out, out])
    with pytest.raises(LaunchError, match=r"output 0 \(Y\) shares memory with thrice: input 0"):
        thrice_x(x, out=x)
    with pytest.raises(LaunchError, match="no array"):
        thrice_x([1.0])
    with pytest.raises(LaunchError, match=r"input 0 \(X\) is float64, the program takes float16"):
        thrice_x(values(3, 70, dtype=np.float64))
    with pytest.raises(LaunchError, match=r"input 0 \(X\) has shape \(3, 71\), the program takes \(3, 70\)"):
        thrice_x(values(3, 71))
    with pytest.raises(LaunchError, match=r"output 0 \(Y\) is an array of another library, the inputs are of NumPy"):
        thrice_x(values(3, 70), out=out)
    frozen = values(3, 70)
    frozen.flags.writeable = False
    with pytest.raises(LaunchError, match=r"output 0 \(Y\) is read-only"):
        thrice_x(values(3, 70), out=frozen)
    assert gpu.launched == []


def test_inputs_on_both_sides_are_refused(gpu: HostGpu) -> None:
    program, graph = product_and_input()
    both = Executable(graph, program, gpu.compiled(program), "sm_90a")
    with pytest.raises(LaunchError, match=r"input 1 \(W\) is an array of NumPy, input 0 \(X\) one of another library"):
        both(gpu.array(values(2, 3, 5), both.inputs[0]), values(5, 4))


def test_what_was_compiled_is_told(gpu: HostGpu, thrice_x: Executable) -> None:
    (first, second) = thrice_x.kernels
    assert (first.name, first.arch, first.registers, first.spills, first.shared_bytes) == ("twice", "sm_90a", 32, 0, 16)
    assert first.compile_s == 0.25
    assert "global__ void __launch_bounds__(128) added" in second.source
    assert "added: 2x1x1 blocks of 128 threads, 32 registers" in thrice_x.describe()
    assert repr(thrice_x) == "<Executable thrice(X[3, 70]) for sm_90a, 2 steps>"


def test_without_a_gpu_a_call_says_so() -> None:
    program, graph = thrice()
    made = Executable(graph, program, {}, "sm_90a")
    with pytest.raises(LaunchError, match=r"no CUDA device|CuPy is not installed"):
        made(values(3, 70))


def test_compiling_a_program_needs_no_gpu(cubin_cache: Any) -> None:
    program, graph = thrice()
    options = module.CompileOptions(cache_folder=cubin_cache)
    made = compile_program(program, graph, "sm_90a", options)
    assert [report.spills for report in made.kernels] == [0, 0]
    assert all(report.cubin.is_file() and report.registers > 0 for report in made.kernels)
    assert all(report.is_cached for report in compile_program(program, graph, "sm_90a", options).kernels)
    with pytest.raises(KernelCompileError, match="does not compile") as caught:
        compile_program(thrice(body=ADDED.replace("to_f32(b[i])", "nonsense"))[0], graph, "sm_90a", options)
    assert caught.value.__notes__ == ["in kernel added of program thrice"]


def test_schedules_keep_to_the_architecture() -> None:
    _, graph = thrice()
    assert module.for_architecture(graph, {}, architecture("h200")) == {}
    old = module.for_architecture(graph, {}, architecture("a100"))
    assert {(schedule.shared_limit, schedule.cluster) for schedule in old.values()} == {(163 * 1024, 1)}
    assert len(old) == len(graph.nodes)


def test_bfloat16_by_its_bits() -> None:
    tensor = DeviceTensor("t", (2, 3), DType.BFLOAT16)
    assert as_stored(np.zeros((2, 3), np.uint16), tensor, "x").dtype == np.uint16
    with pytest.raises(LaunchError, match="the bits of bfloat16, as uint16"):
        as_stored(np.zeros((2, 3), np.float32), tensor, "x")


def test_kinds_of_arrays(gpu: HostGpu) -> None:
    assert kind_of(np.zeros(3)) is ArrayKind.NUMPY
    assert kind_of(np.float16(3)) is ArrayKind.NUMPY
    assert kind_of([3.0]) is ArrayKind.OTHER
    tensor = DeviceTensor("t", (2, 3), DType.BFLOAT16, (1, 2))
    made = new_array(ArrayKind.NUMPY, tensor, 0, gpu)
    assert (made.shape, made.strides, made.dtype) == ((2, 3), (2, 4), np.uint16)
    made = new_array(ArrayKind.OTHER, tensor, 0, gpu)
    assert (made.array.shape, made.array.strides, made.array.dtype) == ((2, 3), (2, 4), np.uint16)


def test_copies_keep_the_tensors_strides(gpu: HostGpu) -> None:
    shape = (3, 4)
    tensor = DeviceTensor("t", shape, DType.FLOAT32, column_major_strides(shape))
    copy = HostCopy(tensor, gpu)
    array = np.arange(12, dtype=np.float32).reshape(shape)
    copy.send(array, 0)
    there = np.ctypeslib.as_array((ctypes.c_float * 12).from_address(copy.pointer))
    np.testing.assert_array_equal(there, array.T.ravel())
    copy.fetch(0)
    back = np.zeros(shape, np.float32)
    copy.read(back)
    np.testing.assert_array_equal(back, array)
