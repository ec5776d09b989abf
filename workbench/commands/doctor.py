"""`workbench doctor`: which optional parts this machine has, and how to get those it lacks.

Invariant: nothing here imports a GPU library into this process; they are tried in a process of their own, which may
crash or hang without harm.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import workbench
from workbench.commands.answer import Answer, Call, Json
from workbench.device.toolkit import tool_folders

PROBE_TIMEOUT_S = 60.0
"""Seconds one probe may take; a first import of CuPy on a slow disk took 20."""

_GPU_PROBE = """
import ctypes, json, sys
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError:
    sys.exit("no CUDA driver")
def call(function, *arguments):
    status = getattr(cuda, function)(*arguments)
    if status:
        sys.exit(f"{function} of the CUDA driver returned error {status}")
number, name = ctypes.c_int(), ctypes.create_string_buffer(256)
call("cuInit", 0)
call("cuDeviceGetCount", ctypes.byref(number))
if not number.value:
    sys.exit("the CUDA driver sees no device")
call("cuDeviceGetName", name, 256, 0)
driver = ctypes.c_int()
call("cuDriverGetVersion", ctypes.byref(driver))
print(json.dumps(f"{number.value} x {name.value.decode()}, driver for CUDA {driver.value // 1000}.{driver.value % 1000 // 10}"))
"""
_CUPY_PROBE = """
import warnings; warnings.simplefilter("ignore")
import json
import cupy
print(json.dumps(cupy.__version__))
"""
_NVRTC_PROBE = f"""
import json, sys
sys.path.append({str(Path(workbench.__file__).parent.parent)!r})
from workbench.device.nvrtc import load_nvrtc
from workbench.errors import KernelCompileError
try:
    nvrtc = load_nvrtc()
except KernelCompileError as error:
    sys.exit(str(error).partition(" (")[2].rstrip(")") or str(error))  # what was tried, and how it failed
source = 'extern "C" __global__ void k(float *x) {{ x[threadIdx.x] = 1.0f; }}'
_, log, is_good = nvrtc.compile(source, ["-arch=sm_90a"], "cubin")
print(json.dumps(nvrtc.version)) if is_good else sys.exit(log or "it does not compile")
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one part. Attributes: ok; version (what was found, or why not); cure (None if ok)."""

    ok: bool
    version: str | None
    cure: str | None

    @property
    def values(self) -> dict[str, Json]:
        """The finding as a JSON object."""
        return {"ok": self.ok, "version": self.version, "cure": self.cure}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare no argument of its own."""


def run(call: Call) -> Answer:
    """Return what this machine has. The answer is yes even when parts are missing: the main job needs none of them."""
    findings = {}
    lines = [
        f"workbench {workbench.__version__}, Python {platform.python_version()} on {platform.platform(terse=True)}"
    ]
    for name, (use, look) in _LOOKS.items():
        call.progress(f"looking for {name}")
        findings[name] = finding = look()
        lines.append(f"{'ok' if finding.ok else '--':3} {name:10} {use}: {finding.version or 'not found'}")
        if finding.cure:
            lines.append(f"    {'':10} {finding.cure}")
    values: dict[str, Json] = {name: finding.values for name, finding in findings.items()}
    values |= {"workbench": workbench.__version__, "python": platform.python_version()}
    return Answer("\n".join(lines), values)


def look_for_gpu() -> Finding:
    """Return whether a CUDA driver sees a device."""
    return _probe(
        _GPU_PROBE,
        "without a GPU everything but timing works, and recorded measurements replay; else install the driver",
    )


def look_for_cupy() -> Finding:
    """Return whether CuPy can be imported."""
    return _probe(_CUPY_PROBE, "pip install 'mugraph-workbench[cuda]'")


def look_for_nvrtc() -> Finding:
    """Return whether NVRTC compiles a kernel for sm_90a; it needs no GPU."""
    return _probe(_NVRTC_PROBE, "pip install 'mugraph-workbench[cuda]'")


def look_for_nvcc() -> Finding:
    """Return whether the CUDA compiler is on the PATH, in its toolkit's folder or among the installed packages."""
    cure = "optional: pip install 'mugraph-workbench[nvcc]', or the CUDA toolkit"
    return _tool("nvcc", ["--version"], r"release [\d.]+, V([\d.]+)", cure)


def look_for_ncu() -> Finding:
    """Return whether Nsight Compute is there."""
    return _tool("ncu", ["--version"], r"Version ([\d.]+)", "optional: install Nsight Compute with the CUDA toolkit")


def look_for_dot() -> Finding:
    """Return what draws graphs: Graphviz's `dot`, or the packaged graphviz-pure in its place."""
    if shutil.which("dot"):
        return _tool("dot", ["-V"], r"version ([\d.]+)", "reinstall Graphviz")
    try:
        packaged = version("graphviz-pure")
    except PackageNotFoundError:
        return Finding(False, None, "pip install graphviz-pure, or install Graphviz")
    name = "graphviz-pure" + (sysconfig.get_config_var("EXE") or "")
    if shutil.which("graphviz-pure") or Path(sysconfig.get_path("scripts"), name).exists():
        return Finding(True, f"graphviz-pure {packaged}, no dot on the PATH", None)
    return Finding(
        False, f"graphviz-pure {packaged} without its program", "pip install --force-reinstall graphviz-pure"
    )


def look_for_jupyterlab() -> Finding:
    """Return whether JupyterLab is installed."""
    try:
        return Finding(True, version("jupyterlab"), None)
    except PackageNotFoundError:
        return Finding(False, None, "pip install 'mugraph-workbench[lab]'")


_LOOKS: dict[str, tuple[str, Callable[[], Finding]]] = {
    "gpu": ("runs and times kernels", look_for_gpu),
    "cupy": ("launches kernels", look_for_cupy),
    "nvrtc": ("compiles kernels, without a GPU too", look_for_nvrtc),
    "nvcc": ("builds the launchers that `emit -o` writes", look_for_nvcc),
    "ncu": ("reads hardware counters", look_for_ncu),
    "dot": ("draws graphs", look_for_dot),
    "jupyterlab": ("opens the notebooks", look_for_jupyterlab),
}
"""What each part is for, and how it is looked for."""


def _probe(script: str, cure: str) -> Finding:
    """Run a script that prints one JSON string, the version; what it writes last on stderr says why it failed."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Finding(False, f"no answer within {PROBE_TIMEOUT_S:.0f} s", cure)
    if done.returncode == 0:
        return Finding(True, str(json.loads(done.stdout.splitlines()[-1])), None)
    complaint = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return Finding(False, complaint[-1][:200] if complaint else f"ended with {done.returncode}", cure)


def _tool(name: str, arguments: list[str], pattern: str, cure: str) -> Finding:
    """Run a program that prints its version, from the PATH or from the first folder of CUDA's tools that has it."""
    elsewhere = (folder / name for folder in tool_folders())
    found = shutil.which(name) or next((str(path) for path in elsewhere if path.exists()), None)
    if found is None:
        return Finding(False, None, cure)
    try:
        done = subprocess.run([found, *arguments], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(False, f"{found} does not run: {type(error).__name__}", cure)
    match = re.search(pattern, done.stdout + done.stderr)
    if done.returncode or match is None:
        return Finding(False, f"{found} does not tell its version", cure)
    where = "" if shutil.which(name) else f" at {found}, not on the PATH"
    return Finding(True, match.group(1) + where, None)
