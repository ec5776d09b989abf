"""Compilers where they are, else the tests of compiled kernels are skipped; a stand-in GPU that runs kernels on the host."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.device.hand_made import thrice
from tests.unit.device.host_gpu import HostGpu, install
from workbench.codegen.cuda.content_cache import user_cache_folder
from workbench.device.executable import Executable
from workbench.device.nvrtc import load_nvrtc
from workbench.device.toolkit import find_tool
from workbench.errors import KernelCompileError


@pytest.fixture(scope="session")
def cubin_cache(cache_home: Path) -> Path:
    """Where this run's cubins are kept; skips the test when NVRTC is missing."""
    try:
        load_nvrtc()
    except KernelCompileError as error:
        pytest.skip(str(error))
    return user_cache_folder("cubin")


@pytest.fixture(scope="session")
def nvcc() -> str:
    """The path of nvcc; skips the test when it is missing."""
    try:
        return find_tool("nvcc")
    except KernelCompileError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def disassembler() -> None:
    """Skips the test when no disassembler is installed."""
    for tool in ("nvdisasm", "cuobjdump"):
        try:
            find_tool(tool)
        except KernelCompileError:
            continue
        return
    pytest.skip("neither nvdisasm nor cuobjdump is installed")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> HostGpu:
    """A GPU whose kernels run on the host."""
    return install(monkeypatch)


@pytest.fixture
def thrice_x(gpu: HostGpu) -> Executable:
    """A program of two kernels, compiled for it."""
    program, graph = thrice()
    return Executable(graph, program, gpu.compiled(program), "sm_90a")
