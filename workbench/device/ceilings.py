"""What this GPU reaches at best: streaming reads from device memory, and one large float16 product by the vendor's library.

Invariant: both are timed like programs are, by replays of a captured graph, on random numbers, several times the L2 cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from workbench.codegen.cuda.library_matmul import plan_matmul
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.device.architecture import architecture_name
from workbench.device.compile import compile_cubin
from workbench.device.launch import load_cupy
from workbench.device.library_calls import cublas_of
from workbench.device.timing_gpu import CupyGpu, Results

READ_BYTES = 2 << 30
PRODUCT_EXTENT = 8192
READ_SOURCE = """
extern "C" __global__ void __launch_bounds__(512) read_all(const uint4* x, unsigned* y, long long count) {
  unsigned seen = 0;
  const long long step = (long long)gridDim.x * 512 * 8;
  for (long long start = (long long)blockIdx.x * 512 * 8 + threadIdx.x; start < count; start += step) {
    uint4 v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const long long at = start + i * 512;
      if (at < count) asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v[i].x), "=r"(v[i].y), "=r"(v[i].z), "=r"(v[i].w) : "l"(x + at));
      else v[i] = make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) seen ^= v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
  }
  if (seen == 0x12345678u) y[0] = seen;  // never true in practice, but it keeps the loads
}
"""


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Ceilings: reads from device memory in TB/s, float16 tensor-core products in TFLOP/s; how they were had."""

    read_tb_s: float
    product_tflops: float
    source: str = "measured in this run"

    def to_json(self) -> dict[str, float | str]:
        """Return it as a JSON object."""
        return asdict(self)


def measure_ceilings() -> Ceilings:
    """Return the ceilings of the current GPU, in about a second. Raises: LaunchError, KernelCompileError."""
    gpu, cupy = CupyGpu(with_torch=False), load_cupy()
    try:
        arch = architecture_name(str(cupy.cuda.Device().compute_capability))
        kernel = cupy.RawModule(path=str(compile_cubin(READ_SOURCE, arch).path)).get_function("read_all").kernel
        x = cupy.random.randint(0, 1 << 31, READ_BYTES // 4, dtype=cupy.int32)
        y = cupy.zeros(1, cupy.uint32)
        blocks = int(cupy.cuda.Device().attributes["MultiProcessorCount"]) * 4
        arguments = (np.uint64(x.data.ptr), np.uint64(y.data.ptr), np.int64(READ_BYTES // 16))

        def read() -> None:
            kernel((blocks, 1, 1), (512, 1, 1), arguments, 0, cupy.cuda.get_current_stream())

        read_s = _least_s(gpu, read)
        del x
        cupy.get_default_memory_pool().free_all_blocks()
        n = PRODUCT_EXTENT
        a, b, c = (cupy.random.standard_normal((n, n), dtype=cupy.float32).astype(cupy.float16) for _ in range(3))
        tensors = [DeviceTensor(name, (n, n), DType.FLOAT16) for name in "ABC"]
        calls = plan_matmul(*tensors)
        pointers = (int(a.data.ptr), int(b.data.ptr), int(c.data.ptr))
        cublas, half = cublas_of(int(cupy.cuda.Device().id)), DType.FLOAT16

        def multiply() -> None:
            cublas.multiply(calls, (half, half, half), pointers, gpu.stream)

        product_s = _least_s(gpu, multiply)
        return Ceilings(READ_BYTES / read_s * 1e-12, 2.0 * n**3 / product_s * 1e-12)
    finally:
        gpu.free()


def _least_s(gpu: CupyGpu, run: Callable[[], None], replays: int = 20) -> float:
    """Return the median seconds of a run, captured four times in one graph after a warm-up."""

    def action() -> Results:
        for _ in range(4):
            run()
        return ()

    run()
    gpu.synchronize()
    graph, _ = gpu.capture(action)
    times = [gpu.elapsed_s(graph) for _ in range(replays)][replays // 4 :]
    return float(np.median(times)) / 4
