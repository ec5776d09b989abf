"""Exported folders: their files, the launcher built by nvcc, the loader run on a GPU of host memory."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.device.hand_made import kernel, product_and_input, thrice
from tests.unit.device.host_gpu import HostCublas, HostGpu, memory_at
from workbench.codegen.cuda.emitted import Buffer, EmittedProgram, KernelLaunch
from workbench.codegen.cuda.export import export_program
from workbench.codegen.cuda.export.self_check import make_input
from workbench.codegen.cuda.host_run import HostOptions, run_on_host
from workbench.codegen.cuda.library_matmul import GemmCall
from workbench.codegen.cuda.schedule import Schedule
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.device.toolkit import find_tool
from workbench.errors import KernelCompileError
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.serialize import from_json
from workbench.ugraph.tracing import trace

FILES = ["description.json", "kernel.cu", "launcher.cu", "load_kernel.py", "reference.bin", "torch_op.py"]


def test_the_files_and_what_they_say(tmp_path: Path) -> None:
    program, graph = thrice()
    needs = {"twice": {"registers": 12}}
    written = export_program(program, graph, tmp_path / "a" / "b", needs=needs, certificate={"verdict": "equal"})
    assert [path.name for path in written] == FILES == sorted(path.name for path in (tmp_path / "a" / "b").iterdir())
    description = json.loads((tmp_path / "a/b/description.json").read_text())
    source = (tmp_path / "a/b/kernel.cu").read_text()
    assert description["source_sha256"] == hashlib.sha256(source.encode()).hexdigest()
    assert source.count("void load_a(") == 1
    assert source.index(" twice(") < source.index(" added(")
    assert (description["hash"], description["arch"]) == (graph.hash, "sm_90a")
    assert description["certificate"] == {"verdict": "equal"}
    assert description["kernels"][0]["needs"] == {"registers": 12}
    assert description["identifier"] == f"thrice_{graph.hash[:8]}"
    assert [step["arguments"] for step in description["steps"]] == [["X", "T"], ["T", "X", "Y"]]
    assert from_json(description["graph"]) == graph
    assert description["graph_text"] == graph.describe()
    reference = np.fromfile(tmp_path / "a/b/reference.bin", "<f4").reshape(3, 70)
    np.testing.assert_allclose(reference, 3 * make_input(graph.inputs[0], 0, 1), rtol=1e-6)
    for path in written:
        if path.suffix in (".py", ".cu"):
            text = path.read_text()
            assert "import workbench" not in text
            assert "@NAME@" not in text


def test_unchecked(tmp_path: Path) -> None:
    program, graph = thrice()
    names = [path.name for path in export_program(program, graph, tmp_path, checked=False)]
    assert names == ["description.json", "kernel.cu", "load_kernel.py", "torch_op.py"]


def test_python_files_are_python(tmp_path: Path) -> None:
    program, graph = thrice()
    for path in export_program(program, graph, tmp_path):
        if path.suffix == ".py":
            __import__("ast").parse(path.read_text())


# ------------------------------------------------------------------------------------------------------- the launcher
@pytest.fixture(scope="module")
def nvcc() -> str:
    try:
        found = find_tool("nvcc")
    except KernelCompileError as error:
        pytest.skip(str(error))
    if shutil.which("g++") is None:
        pytest.skip("nvcc needs g++")
    return found


def build(nvcc: str, folder: Path, *arguments: str, source: str = "launcher.cu") -> Path:
    command = [nvcc, "-std=c++17", "-gencode=arch=compute_90a,code=sm_90a", *arguments, source, "-o", "launcher"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder / "launcher"


def large_program() -> tuple[EmittedProgram, KernelGraph]:
    """Return a program of one kernel with much shared memory, a large cluster and a programmatic launch, all types."""
    body = """
extern "C" __global__ void __launch_bounds__(128) WB_CLUSTER(16, 1, 1)
    mixed(const f16* __restrict__ a, const bf16* __restrict__ b, const float* __restrict__ c, float* __restrict__ y) {
  WB_DYNAMIC_SHARED(memory);
  grid_dependency_wait();
  const int i = blockIdx.x * 128 + thread_index();
  ((float*)memory)[thread_index()] = to_f32(a[i]) + to_f32(b[i]);
  y[i] = ((float*)memory)[thread_index()] + c[i];
}
"""
    shape = (16, 128)
    kinds = {"a": DType.FLOAT16, "b": DType.BFLOAT16, "c": DType.FLOAT32}
    inputs = {name: DeviceTensor(name.upper(), shape, dtype) for name, dtype in kinds.items()}
    y = DeviceTensor("Y", shape, DType.FLOAT32)
    made = kernel("mixed", body, inputs, {"y": y})
    launch = replace(made.launch, cluster=(16, 1, 1), shared_bytes=100_000)
    made = replace(made, launch=launch, schedule=Schedule(programmatic=True))
    buffers = [Buffer(tensor.name, tensor, "input", 0, 0) for tensor in inputs.values()] + [
        Buffer("Y", y, "output", 0, 0)
    ]
    program = EmittedProgram(
        name="mixed sums", steps=(KernelLaunch(made, ("A", "B", "C", "Y")),), buffers=tuple(buffers),
        inputs=("A", "B", "C"), outputs=("Y",), workspace_bytes=0,
    )  # fmt: skip
    graph = trace(lambda A, B, C: A + B + C, A=shape, B=shape, C=shape, dtype="float32")
    return program, graph


def test_the_launcher_builds_and_makes_pythons_inputs(nvcc: str, tmp_path: Path) -> None:
    program, graph = large_program()
    export_program(program, graph, tmp_path)
    (tmp_path / "inputs.cu").write_text(
        """
#define main launcher_main
#include "launcher.cu"
#undef main
int main() {
  for (size_t number = 0; number < inputs.size(); number++) {
    std::vector<unsigned char> memory(inputs[number].bytes());
    for (long long i = 0; i < inputs[number].elements(); i++)
      store(memory, inputs[number].type, inputs[number].place(i), input_element(inputs[number], number, shifts[number], i));
    for (long long i = 0; i < inputs[number].elements(); i++)
      std::printf("%.17g\\n", read(memory, inputs[number].type, inputs[number].place(i)));
  }
}
"""
    )
    ran = subprocess.run(
        [str(build(nvcc, tmp_path, source="inputs.cu"))], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    found = np.array([float(line) for line in ran.stdout.split()]).reshape(3, 16, 128)
    description = json.loads((tmp_path / "description.json").read_text())
    for number, (tensor, shift) in enumerate(zip(graph.inputs, description["self_check"]["shifts"], strict=True)):
        np.testing.assert_array_equal(found[number], make_input(tensor, number, shift))
    text = (tmp_path / "launcher.cu").read_text()
    assert "cudaFuncAttributeMaxDynamicSharedMemorySize, 100000" in text
    assert "cudaFuncAttributeNonPortableClusterSizeAllowed" in text
    assert "cudaLaunchAttributeProgrammaticStreamSerialization" in text
    assert "cublas" not in text


def test_the_launcher_without_a_gpu_or_reference_says_so(nvcc: str, tmp_path: Path) -> None:
    program, graph = thrice()
    export_program(program, graph, tmp_path)
    launcher = build(nvcc, tmp_path)
    (tmp_path / "empty").mkdir()
    ran = subprocess.run([str(launcher), "empty"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (2, "reference.bin is not in empty/\n")


CUBLAS_HEADER = """
#pragma once
enum cublasStatus_t { CUBLAS_STATUS_SUCCESS };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F = 68 };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1 };
enum cublasMath_t { CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16 };
typedef struct cublasContext* cublasHandle_t;
cublasStatus_t cublasCreate(cublasHandle_t*);
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t);
cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t);
cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k, const void* alpha, const void* A,
    cudaDataType Atype, int lda, long long strideA, const void* B, cudaDataType Btype, int ldb, long long strideB,
    const void* beta, void* C, cudaDataType Ctype, int ldc, long long strideC, int batch, cublasComputeType_t,
    cublasGemmAlgo_t);
"""


def test_a_launcher_with_library_products_compiles(nvcc: str, tmp_path: Path) -> None:
    """cuBLAS' header is not everywhere; its declarations are repeated here, from its documentation."""
    program, graph = product_and_input()
    export_program(program, graph, tmp_path)
    (tmp_path / "cublas_v2.h").write_text(CUBLAS_HEADER)
    build(nvcc, tmp_path, "-c", "-I.")
    text = (tmp_path / "launcher.cu").read_text()
    assert "(char*)in[0] + 0LL, CUDA_R_16F, 5, 0LL" in text or "(char*)in[1] + 0LL, CUDA_R_16F, 5, 0LL" in text
    assert "cudaMemcpyAsync(out[2], in[0], 60, cudaMemcpyDeviceToDevice, stream)" in text
    assert "cudaMemcpyAsync(out[3], out[0], 48, cudaMemcpyDeviceToDevice, stream)" in text
    assert "-lcublas" in text


# --------------------------------------------------------------------------------------------------------- the loader
class LoaderGpu(HostGpu):
    """A GPU of host memory with the parts of CuPy that the exported loader uses."""

    def __init__(self, program: EmittedProgram) -> None:
        super().__init__()
        self.compiled_with: list[Any] = []
        gpu, products = self, HostCublas(self)

        class Library:
            @staticmethod
            def create() -> int:
                return 9

            @staticmethod
            def setMathMode(handle: int, mode: int) -> None:
                assert (handle, mode) == (9, 16)

            @staticmethod
            def gemmStridedBatchedEx(handle: int, *given: Any) -> None:
                names = ("transpose_a", "transpose_b", "m", "n", "k", "", "a", "type_a", "lda", "stride_a", "b", "type_b",
                         "ldb", "stride_b", "", "c", "type_c", "ldc", "stride_c", "batch", "compute", "algorithm")  # fmt: skip
                v = dict(zip(names, given, strict=True))
                assert (v["type_a"], v["type_b"], v["type_c"], v["compute"], v["algorithm"]) == (2, 2, 2, 68, -1)
                fields = {key: v[key] for key in v if key in GemmCall.__dataclass_fields__}
                call = GemmCall(is_swapped=False, **fields)
                products.multiply([call], (DType.FLOAT16,) * 3, (v["a"], v["b"], v["c"]), 0)

        class Nvrtc:
            NVRTCError = RuntimeError

            @staticmethod
            def createProgram(source: str, *rest: Any) -> str:
                return source

            @staticmethod
            def compileProgram(source: str, options: list[str]) -> None:
                gpu.compiled_with.append(options)

            @staticmethod
            def getCUBIN(source: str) -> bytes:
                return b"cubin"

        cuda = types.ModuleType("cupy.cuda")
        cuda.__dict__.update({name: getattr(self.cuda, name) for name in dir(self.cuda) if not name.startswith("_")})
        cuda.__dict__.update(cublas=Library, nvrtc=Nvrtc)
        device = self.cuda.Device
        cuda.__dict__["Device"] = lambda: types.SimpleNamespace(compute_capability="90", id=device().id)
        self.cuda = cuda  # type: ignore[assignment]
        self.sources = {kernel.launch.kernel: kernel for kernel in program.kernels}
        self.asnumpy = lambda array: array.array
        self.wrong = False

    def RawModule(self, path: str) -> Any:
        assert Path(path).read_bytes() == b"cubin"
        gpu = self

        class Function:
            def __init__(self, symbol: str) -> None:
                self.kernel = gpu.sources[symbol]

            def __call__(self, grid: Any, block: Any, arguments: Any, shared_mem: int = 0) -> None:
                launch = self.kernel.launch
                assert (grid, block, shared_mem) == (launch.grid, (launch.threads,), launch.shared_bytes)
                views = [memory_at(int(a), p.tensor) for a, p in zip(arguments, self.kernel.parameters, strict=True)]
                options = HostOptions(instrument=False, races=False)
                (output,) = run_on_host(self.kernel.source, launch, views, options).outputs
                views[-1][...] = output * np.float16(1.01 if gpu.wrong else 1)

        return types.SimpleNamespace(get_function=Function)


@pytest.mark.parametrize("make", [thrice, product_and_input])
def test_the_loader(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, graph = make()
    export_program(program, graph, tmp_path)
    gpu = LoaderGpu(program)
    monkeypatch.setitem(sys.modules, "cupy", gpu)
    monkeypatch.setitem(sys.modules, "cupy.cuda", gpu.cuda)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    specification = importlib.util.spec_from_file_location("load_kernel", tmp_path / "load_kernel.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    loaded = module.load()
    assert gpu.compiled_with == [["-std=c++17", "-arch=sm_90a"]]
    inputs = []
    for number, tensor in enumerate(graph.inputs):
        declared = module.DESCRIPTION["inputs"][number]
        array = loaded.empty(declared)
        array.array[...] = module.self_check_input(declared, number, 1)
        np.testing.assert_array_equal(array.array, make_input(tensor, number, 1))
        inputs.append(array)
    monkeypatch.setattr(module, "self_check_input", module.self_check_input)
    results = run_self_check(module, loaded)
    assert [name for name, *_ in results] == [tensor["name"] for tensor in module.DESCRIPTION["outputs"]]
    assert all(good for *_, good in results), results
    gpu.wrong = True
    assert not all(good for *_, good in run_self_check(module, loaded))
    with pytest.raises(TypeError, match="the program takes"):
        loaded(*inputs, inputs[0])


def run_self_check(module: Any, loaded: Any) -> Any:
    """Run the loader's self check with arrays that take NumPy values by item assignment, as CuPy's do."""
    make = loaded.empty

    def empty(tensor: Any) -> Any:
        made = make(tensor)
        made.dtype, made.shape, made.strides = made.array.dtype, made.array.shape, made.array.strides
        made.data = types.SimpleNamespace(ptr=made.array.ctypes.data)
        return made

    loaded.empty = empty
    results = module.self_check(loaded)
    loaded.empty = make
    return results
