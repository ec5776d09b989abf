"""Every intrinsic of the device header on a GPU against NumPy, from the text that the host tests run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from workbench.codegen.cuda.selftest import intrinsic_cases
from workbench.device.launch import load_cupy
from workbench.device.selftest import run_case
from workbench.device.worker import Worker

pytestmark = pytest.mark.gpu
CASES = {case.name: case for case in intrinsic_cases()}
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as found:
        yield found


@pytest.fixture(scope="module")
def arch() -> str:
    number = str(load_cupy().cuda.Device().compute_capability)
    return f"sm_{number}a" if number == "90" else f"sm_{number}"


@pytest.mark.parametrize("name", CASES)
def test_intrinsic(name: str, worker: Worker, arch: str) -> None:
    if arch < CASES[name].needs:
        pytest.skip(f"needs {CASES[name].needs}, this GPU is {arch}")
    assert worker.run(run_case, LIMIT_S, name, arch).result().complaint == ""
