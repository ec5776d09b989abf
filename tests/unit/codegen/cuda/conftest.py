"""Kernels that run on the host: one folder of built programs for the run, and a skip where there is no g++."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.codegen.cuda import host_build
from workbench.codegen.cuda.content_cache import user_cache_folder


@pytest.fixture(scope="package", autouse=True)
def _quickly_built() -> Iterator[None]:
    """Kernels of tests are small: building takes longer than running, and unoptimised they take a fifth less in all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_build, "KERNEL_LEVEL", "-O0")
        yield


@pytest.fixture(scope="session")
def host_cache(cache_home: Path) -> Path:
    """Where this run's host programs are kept; skips the test when no C++ compiler is there."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ on the PATH: kernels cannot be built for the host")
    return user_cache_folder("host")
