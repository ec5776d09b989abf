"""What the GPU tests share: CuPy, this GPU's architecture, and one worker process for the jobs of a module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from workbench.device.architecture import architecture_name
from workbench.device.launch import load_cupy
from workbench.device.worker import Worker


@pytest.fixture(scope="session")
def cupy() -> Any:
    """CuPy on the current GPU; without one no test of the marker `gpu` comes this far."""
    return load_cupy()


@pytest.fixture(scope="session")
def device() -> str:
    """The compile target of the current GPU."""
    return architecture_name(str(load_cupy().cuda.Device().compute_capability))


@pytest.fixture(scope="module")
def checker() -> Iterator[Worker]:
    """A worker process that checks candidates; it is started again after a fault."""
    with Worker() as found:
        yield found
