"""Where CUDA's command-line tools are: on the PATH, in the toolkit's folder, or in the Python packages that ship them."""

from __future__ import annotations

import os
import shutil
import sysconfig
from functools import cache
from pathlib import Path

from workbench.errors import KernelCompileError

CURES = {
    "nvcc": "pip install 'mugraph-workbench[nvcc]' or CUDA's toolkit",
    "cuobjdump": "pip install nvidia-cuda-cuobjdump",
    "nvdisasm": "pip install nvidia-cuda-nvdisasm",
}


def tool_folders() -> list[Path]:
    """Return the folders outside the PATH where CUDA's tools may lie, best first."""
    folders: list[Path] = []
    for name in ("purelib", "platlib"):
        packages = Path(sysconfig.get_path(name))
        folders += sorted(packages.glob("nvidia/cu*/bin"), reverse=True)
        folders.append(packages / "triton" / "backends" / "nvidia" / "bin")
    folders += [Path(root) / "bin" for variable in ("CUDA_HOME", "CUDA_PATH") if (root := os.environ.get(variable))]
    folders.append(Path("/usr/local/cuda/bin"))
    return list(dict.fromkeys(folders))


@cache
def find_tool(name: str) -> str:
    """Return the path of nvcc, ptxas, cuobjdump or nvdisasm. Raises: KernelCompileError that says what to install."""
    on_path = shutil.which(name)
    if on_path:
        return on_path
    for folder in tool_folders():
        if os.access(folder / name, os.X_OK):
            return str(folder / name)
    raise KernelCompileError(f"{name} is not installed; {CURES.get(name, 'install the CUDA toolkit')}")
