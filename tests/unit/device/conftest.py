"""Compilers where they are: the tests of compiled kernels are skipped, with the reason, where they are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.codegen.cuda.content_cache import user_cache_folder
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
