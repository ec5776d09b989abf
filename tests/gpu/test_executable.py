"""`wb.compile` on a GPU: arrays of NumPy, CuPy and torch, streams, CUDA graphs, no allocation, refusals."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.codegen.cuda.storage import from_storage
from workbench.core.dtypes import DType
from workbench.device.check import check_executable
from workbench.device.executable import Executable, compile
from workbench.errors import LaunchError
from workbench.ugraph.tracing import trace

pytestmark = pytest.mark.gpu
SIZES: dict[str, Any] = {"heads": 2, "rows": 48, "head_dim": 64, "context": 512}


@pytest.fixture(scope="module")
def torch() -> Any:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    return importlib.import_module("torch")


@pytest.fixture(scope="module")
def attention(device: str) -> Executable:
    """Two kernels with intermediates between them."""
    return compile(wb.programs.known_good("gqa", **SIZES)[0], device)


def inputs(executable: Executable, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [(0.3 * rng.standard_normal(tensor.shape)).astype(np.float16) for tensor in executable.inputs]


def right(executable: Executable, arrays: list[Any]) -> Any:
    return wb.evaluate(executable.graph, arrays)[0]


def close(found: Any, expected: Any) -> bool:
    return bool(np.linalg.norm(found.astype(np.float64) - expected) <= 2e-3 * np.linalg.norm(expected))


def test_numpy(attention: Executable) -> None:
    for seed in (0, 1):
        arrays = inputs(attention, seed)
        found = attention(*arrays)
        assert found.dtype == np.float16
        assert close(found, right(attention, arrays))


def test_cupy_without_allocation(attention: Executable, cupy: Any) -> None:
    arrays = inputs(attention)
    there = [cupy.asarray(array) for array in arrays]
    found = attention(*there)
    assert isinstance(found, cupy.ndarray)
    assert close(found.get(), right(attention, arrays))
    out = cupy.full_like(found, cupy.nan)
    kept = attention(*there, reuse=True)
    pool = cupy.get_default_memory_pool()
    before = pool.used_bytes(), pool.total_bytes()
    for _ in range(50):
        attention(*there, out=out)
        assert attention(*there, reuse=True) is kept
    cupy.cuda.Device().synchronize()
    assert (pool.used_bytes(), pool.total_bytes()) == before
    assert bool((out == found).all())


def test_streams_and_cuda_graphs(attention: Executable, cupy: Any) -> None:
    arrays = inputs(attention)
    there = [cupy.asarray(array) for array in arrays]
    expected = attention(*there)
    out = cupy.zeros_like(expected)
    cupy.cuda.Device().synchronize()
    for stream in (cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)):
        with stream:
            attention(*there, out=out)
            stream.synchronize()
            assert bool((out == expected).all())
            out.fill(0)
            stream.begin_capture()
            attention(*there, out=out)
            graph = stream.end_capture()
            graph.launch(stream)
            stream.synchronize()
            assert bool((out == expected).all())
            out.fill(0)
            go = attention.prepare(*there, out=out, stream=stream)
            go()
            stream.synchronize()
            assert bool((out == expected).all())


def test_calls_on_two_streams_do_not_mix(attention: Executable, cupy: Any) -> None:
    """The intermediates are shared: calls in turn on two streams, without waiting, give what each must."""
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    sets = [[cupy.asarray(array) for array in inputs(attention, seed)] for seed in (0, 1)]
    expected = [attention(*arrays) for arrays in sets]
    outs = [[cupy.zeros_like(expected[0]) for _ in range(20)] for _ in range(2)]
    cupy.cuda.Device().synchronize()
    for number in range(20):
        for which in range(2):
            attention(*sets[which], out=outs[which][number], stream=streams[which])
    cupy.cuda.Device().synchronize()
    assert all(bool((out == expected[which]).all()) for which in range(2) for out in outs[which])


def test_torch(attention: Executable, torch: Any) -> None:
    arrays = inputs(attention)
    there = [torch.from_numpy(array).cuda() for array in arrays]
    found = attention(*there)
    assert (found.dtype, found.device.type) == (torch.float16, "cuda")
    assert close(found.cpu().numpy(), right(attention, arrays))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    out = torch.zeros_like(found)
    with torch.cuda.stream(side):
        attention(*there, out=out)
    torch.cuda.synchronize()
    assert torch.equal(out, found)
    out.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        attention(*there, out=out)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, found)


def test_torch_refusals(attention: Executable, torch: Any) -> None:
    there = [torch.from_numpy(array).cuda() for array in inputs(attention)]
    with pytest.raises(LaunchError, match=r"input 0 \(Q\) lies on cpu"):
        attention(there[0].cpu(), *there[1:])
    with pytest.raises(LaunchError, match=r"input 1 \(K\) is float32"):
        attention(there[0], there[1].float(), there[2])
    with pytest.raises(LaunchError, match=r"input 2 \(V\) has strides"):
        attention(there[0], there[1], there[2].transpose(1, 2).contiguous().transpose(1, 2))
    with pytest.raises(LaunchError, match=r"input 0 \(Q\).*grad"):
        attention(there[0].clone().requires_grad_(), *there[1:])


def test_bfloat16_in_torch_and_numpy(torch: Any, device: str) -> None:
    program = wb.programs.known_good("rms_norm_linear", dtype="bfloat16", batch=5, hidden=192, out=136)[0]
    executable = compile(program, device)
    arrays = [torch.randn(tensor.shape, device="cuda").bfloat16() for tensor in executable.inputs]
    found = executable(*arrays)
    assert found.dtype == torch.bfloat16
    expected = wb.evaluate(program, [array.double().cpu().numpy() for array in arrays])[0]
    difference = np.linalg.norm(found.double().cpu().numpy() - expected)
    assert difference < 1e-2 * np.linalg.norm(expected)
    bits = [array.view(torch.uint16).cpu().numpy() for array in arrays]
    again = executable(*bits)
    assert again.dtype == np.uint16
    np.testing.assert_array_equal(from_storage(again, DType.BFLOAT16), found.double().cpu().numpy())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_library_products(dtype: str, device: str) -> None:
    """cuBLAS with float32 accumulation: plain, batched, broadcast, several outputs, an input passed through."""
    graph = trace(
        lambda X, W, V: (X @ W, (p := X @ W) * 2 + p, V @ V, X),
        X=(4, 33, 1000),
        W=(1000, 48),
        V=(2, 3, 16, 16),
        dtype=dtype,
    )
    executable = compile(graph, device)
    assert executable.library_calls
    report = check_executable(executable)
    assert report.is_right, report.describe()


def test_a_large_contraction_is_accumulated_in_float32(device: str) -> None:
    """A sum of 65536 equal terms stalls at 2048 in float16."""
    graph = trace(lambda X, W: X @ W, X=(16, 65536), W=(65536, 16))
    executable = compile(graph, device)
    found = executable(np.full((16, 65536), 0.25, np.float16), np.full((65536, 16), 0.25, np.float16))
    np.testing.assert_allclose(found.astype(np.float64), 4096.0, rtol=1e-3)
