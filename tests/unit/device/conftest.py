"""Compilers where they are: the tests of compiled kernels are skipped, with the reason, where they are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.device.nvrtc import load_nvrtc
from workbench.device.toolkit import find_tool
from workbench.errors import KernelCompileError


@pytest.fixture(scope="session")
def cubin_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this session's cubins are kept; skips the test when NVRTC is missing."""
    try:
        load_nvrtc()
    except KernelCompileError as error:
        pytest.skip(str(error))
    return tmp_path_factory.mktemp("cubin")


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
