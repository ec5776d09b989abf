"""Exported folders on a machine with a GPU: the loader, the C++ launcher and torch's operator, without the workbench."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from workbench.device.executable import compile
from workbench.device.toolkit import find_tool
from workbench.errors import KernelCompileError

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(240)]
GRAPHS = {
    "two kernels": lambda: wb.programs.known_good("gqa", heads=2, rows=48, head_dim=64, context=512)[0],
    "library products": lambda: wb.programs.get("gated_mlp", batch=8, hidden=256, out=256),
    "bfloat16": lambda: wb.programs.known_good("rms_norm_linear", dtype="bfloat16", batch=5, hidden=192, out=136)[0],
}


@pytest.fixture(scope="module", params=GRAPHS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, device: str) -> Path:
    made = tmp_path_factory.mktemp("export")
    compile(GRAPHS[request.param](), device).export(made, certificate={"verdict": "equal"})
    return made


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the folder, with no way to the workbench."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=200
    )


def test_the_python_loader_checks_itself(folder: Path) -> None:
    ran = run(folder, sys.executable, "load_kernel.py")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "right" in ran.stdout
    assert "WRONG" not in ran.stdout


def test_the_launcher_builds_and_checks_itself(folder: Path, device: str) -> None:
    try:
        nvcc = find_tool("nvcc")
    except KernelCompileError as error:
        pytest.skip(str(error))
    text = (folder / "launcher.cu").read_text()
    libraries: list[str] = []
    if "cublas" in text:
        libraries = cublas_flags()
    virtual = device.replace("sm_", "compute_")
    build = [nvcc, "-O2", "-std=c++17", f"-gencode=arch={virtual},code={device}", "launcher.cu", "-o", "launcher"]
    ran = run(folder, *build, *libraries)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    ran = run(folder, "./launcher")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ": right" in ran.stdout
    assert "us a run" in ran.stdout
    reference = folder / "reference.bin"
    data = reference.read_bytes()
    reference.write_bytes(data[:-4000] + bytes(4000))
    ran = run(folder, "./launcher")
    reference.write_bytes(data)
    assert (ran.returncode, "WRONG" in ran.stdout) == (1, True)


def cublas_flags() -> list[str]:
    """Return how nvcc finds cuBLAS: in the toolkit, else in the Python package; skips where there is neither."""
    for root in (Path("/usr/local/cuda"), *(Path(place) / "nvidia" / "cu13" for place in sys.path)):
        libraries = [path for name in ("lib64", "lib") for path in (root / name).glob("libcublas.so*")]
        if (root / "include" / "cublas_v2.h").is_file() and libraries:
            found = libraries[0]
            return [f"-I{root / 'include'}", f"-L{found.parent}", f"-l:{found.name}", f"-Xlinker=-rpath={found.parent}"]
    pytest.skip("cuBLAS' header and library are not installed")


TORCH = """
import torch, torch_op
from load_kernel import DESCRIPTION, load, self_check_input, numbers
import numpy as np
tensors = []
for number, (tensor, shift) in enumerate(zip(DESCRIPTION["inputs"], DESCRIPTION["self_check"]["shifts"])):
    stored = self_check_input(tensor, number, shift)
    made = torch.from_numpy(stored.view(np.int16) if stored.dtype == np.uint16 else stored).cuda()
    tensors.append(made.view(torch.bfloat16) if tensor["dtype"] == "bfloat16" else made)
first = torch_op.run(*tensors)
right = np.fromfile("reference.bin", "<f4").reshape(first.shape)
error = np.linalg.norm(first.double().cpu().numpy() - right) / np.linalg.norm(right)
assert error < DESCRIPTION["self_check"]["tolerance"], error
named = getattr(torch.ops.mugraph, DESCRIPTION["identifier"])
assert torch.equal(named(*tensors), first)
def twice(*given):
    return torch_op.run(*given) * 2
compiled = torch.compile(twice, backend="aot_eager", fullgraph=True)
assert torch.equal(compiled(*tensors), first * 2)
torch.library.opcheck(torch_op._operator, tuple(tensors))
try:
    torch_op.run(tensors[0].float().double(), *tensors[1:])
except Exception as error:
    assert "the program takes" in str(error), error
else:
    raise SystemExit("a wrong type was taken")
print("torch is right")
"""


def test_the_operator_of_torch(folder: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    ran = run(folder, sys.executable, "-c", TORCH)
    assert "torch is right" in ran.stdout, ran.stdout + ran.stderr


def test_the_description_names_the_certificate(folder: Path) -> None:
    import json

    found: dict[str, Any] = json.loads((folder / "description.json").read_text())
    assert found["certificate"] == {"verdict": "equal"}
    assert all(kernel["needs"]["registers"] > 0 for kernel in found["kernels"])
