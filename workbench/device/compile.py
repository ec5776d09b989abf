"""Turn a CUDA source into a cubin without a GPU: NVRTC or nvcc, kept on disk by content.

Invariant: the same source, architecture, flags and compiler give the same file; an error carries the compiler's lines.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path

from workbench.codegen.cuda.content_cache import ContentCache, content_hash, user_cache_folder
from workbench.device.nvrtc import load_nvrtc
from workbench.device.toolkit import find_tool
from workbench.errors import KernelCompileError

COMMON_FLAGS = ("-std=c++17",)
USAGE_FLAG = "-Xptxas=-v"  # NVRTC writes ptxas' report to its log, nvcc to its standard error
LOG_LINES = 12


@dataclass(frozen=True, slots=True)
class KernelUsage:
    """What one kernel needs: registers a thread; spilled, stack (bytes a thread) and static shared memory (bytes a block).

    On sm_90 the hardware reserves 1024 more bytes of shared memory a block, which are not counted here.
    """

    name: str
    registers: int
    spill_bytes: int
    stack_bytes: int
    shared_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileRequest:
    """What is to be compiled; `flags` are further compiler flags such as "-lineinfo"; compiler is "nvrtc" or "nvcc"."""

    source: str
    arch: str = "sm_90a"
    flags: tuple[str, ...] = ()
    compiler: str = "nvrtc"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledKernel:
    """A cubin, where it lies (each has a file name of its own), and what the compiler said.

    compile_s: seconds the compiler took when it ran; load_s: seconds of this call. is_cached: the compiler did not run.
    """

    cubin: bytes = field(repr=False)
    path: Path
    arch: str
    compiler: str
    log: str = field(repr=False)
    compile_s: float
    load_s: float
    is_cached: bool
    kernels: tuple[KernelUsage, ...]

    def usage(self, kernel: str) -> KernelUsage:
        """Return the needs of one kernel. Raises: KernelCompileError for a kernel that the cubin lacks."""
        for found in self.kernels:
            if found.name == kernel:
                return found
        raise KernelCompileError(f"the cubin has no kernel {kernel!r}, only {[found.name for found in self.kernels]}")

    @property
    def registers(self) -> int:
        """Registers a thread, the most of any kernel."""
        return max((kernel.registers for kernel in self.kernels), default=0)

    @property
    def spills(self) -> int:
        """Bytes a thread spills, the most of any kernel."""
        return max((kernel.spill_bytes for kernel in self.kernels), default=0)

    @property
    def shared_bytes(self) -> int:
        """Static shared memory a block, the most of any kernel, in bytes."""
        return max((kernel.shared_bytes for kernel in self.kernels), default=0)


def parse_usage(log: str) -> tuple[KernelUsage, ...]:
    """Read ptxas' report (-v): one record for each entry function, in its order."""
    found = []
    for block in re.split(r"Compiling entry function '", log)[1:]:
        name = block.partition("'")[0]
        stack = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", block)
        used = re.search(r"Used (\d+) registers(.*)", block)
        shared = re.search(r"(\d+) bytes smem", used.group(2)) if used else None
        found.append(
            KernelUsage(
                name,
                int(used.group(1)) if used else 0,
                max(int(stack.group(2)), int(stack.group(3))) if stack else 0,
                int(stack.group(1)) if stack else 0,
                int(shared.group(1)) if shared else 0,
            )
        )
    return tuple(found)


def complete_elf(cubin: bytes) -> bytes:
    """Append the zero byte that CuPy's `getCUBIN` cuts off, so that disassemblers take the file.

    The ELF header says where the program headers end (e_phoff + e_phnum * e_phentsize); nothing is added beyond that.
    """
    if len(cubin) < 64 or cubin[:4] != b"\x7fELF":
        raise KernelCompileError("the compiler gave no ELF file")
    program_headers, section_headers = struct.unpack_from("<QQ", cubin, 32)
    sizes = struct.unpack_from("<4H", cubin, 54)  # size and number of program headers, then of section headers
    end = max(program_headers + sizes[0] * sizes[1], section_headers + sizes[2] * sizes[3])
    if end - len(cubin) > 1:
        raise KernelCompileError(f"the cubin is cut short: {len(cubin)} bytes of {end}")
    return cubin.ljust(end, b"\0")


def error_message(log: str, compiler: str, arch: str) -> str:
    """Return one message with the first lines of the log that tell what is wrong."""
    lines = log.strip().splitlines()
    marked = [i for i, line in enumerate(lines) if "error" in line.lower() or "fatal" in line.lower()]
    shown = lines[marked[0] : marked[0] + LOG_LINES] if marked else lines[:LOG_LINES]
    return f"{compiler} does not compile the kernel for {arch}:\n" + ("\n".join(shown) or "no message")


@cache
def compiler_version(compiler: str) -> str:
    """Return name and version of a compiler. Raises: KernelCompileError when it is unknown or missing."""
    if compiler == "nvrtc":
        return f"nvrtc {load_nvrtc().version}"
    if compiler != "nvcc":
        raise KernelCompileError(f"unknown compiler {compiler!r}; take 'nvrtc' or 'nvcc'")
    command = [find_tool("nvcc"), "--version"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return "nvcc " + text.strip().splitlines()[-1]


def run_nvcc(source: str, arch: str, flags: Sequence[str], target: str) -> tuple[bytes, str]:
    """Return nvcc's output (target "cubin" or "ptx") and log."""
    if shutil.which("g++") is None:
        raise KernelCompileError("nvcc needs a host compiler; install g++, or use compiler='nvrtc', which needs none")
    with tempfile.TemporaryDirectory() as scratch:
        text, out = Path(scratch) / "kernel.cu", Path(scratch) / f"kernel.{target}"
        text.write_text(source, encoding="utf-8")
        virtual = arch.replace("sm_", "compute_")
        # the shorthand -arch=sm_90a has been seen to add a plain sm_90 pass, which refuses Hopper's instructions
        code = f"-gencode=arch={virtual},code={arch if target == 'cubin' else virtual}"
        command = [find_tool("nvcc"), f"-{target}", code, *flags, "-o", str(out), str(text)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        log = (result.stdout + result.stderr).replace(f"{scratch}{os.sep}", "")
        if result.returncode:
            raise KernelCompileError(error_message(log, "nvcc", arch), log)
        return out.read_bytes(), log


def run_nvrtc(source: str, arch: str, flags: Sequence[str], target: str) -> tuple[bytes, str]:
    """Return NVRTC's output (target "cubin" or "ptx") and log."""
    option = arch if target == "cubin" else arch.replace("sm_", "compute_")
    # with a driver NVRTC keeps what it compiled, and then answers without ptxas's report; our own cache does that better
    options = [f"-arch={option}", "-no-cache", *flags]
    data, log, is_good = load_nvrtc().compile(source, options, target)
    if not is_good:
        raise KernelCompileError(error_message(log, "nvrtc", arch), log)
    return data, log


def cached_kernel(store: ContentCache, key: str, started: float) -> CompiledKernel | None:
    """Return a compiled kernel from the disk; None where it is not there, or damaged: then it is compiled anew."""
    cubin, described = store.load(f"{key}.cubin"), store.load(f"{key}.json")
    if cubin is None or described is None:
        return None
    try:
        record = json.loads(described)
        if record["cubin"] != content_hash(cubin):
            return None
        return CompiledKernel(
            cubin=cubin,
            path=store.path(f"{key}.cubin"),
            arch=record["arch"],
            compiler=record["compiler"],
            log=record["log"],
            compile_s=record["compile_s"],
            load_s=time.perf_counter() - started,
            is_cached=True,
            kernels=tuple(KernelUsage(**kernel) for kernel in record["kernels"]),
        )
    except (ValueError, KeyError, TypeError):
        return None


def compile_request(
    request: CompileRequest, cache_folder: Path | None = None, *, use_cache: bool = True
) -> CompiledKernel:
    """Return the cubin of a request; see `compile_cubin`."""
    started = time.perf_counter()
    version = compiler_version(request.compiler)
    store = ContentCache(cache_folder or user_cache_folder("cubin"))
    flags = [*COMMON_FLAGS, *request.flags, USAGE_FLAG]
    key = content_hash(version, request.arch, *flags, request.source)
    found = cached_kernel(store, key, started) if use_cache else None
    if found is not None:
        return found
    begun = time.perf_counter()
    run = run_nvcc if request.compiler == "nvcc" else run_nvrtc
    data, log = run(request.source, request.arch, flags, "cubin")
    compile_s = time.perf_counter() - begun
    compiled = CompiledKernel(
        cubin=complete_elf(data),
        path=store.path(f"{key}.cubin"),
        arch=request.arch,
        compiler=version,
        log=log,
        compile_s=compile_s,
        load_s=0.0,
        is_cached=False,
        kernels=parse_usage(log),
    )
    store.store(f"{key}.cubin", compiled.cubin)
    record = {
        "cubin": content_hash(compiled.cubin),
        "arch": request.arch,
        "compiler": version,
        "log": log,
        "compile_s": compile_s,
        "kernels": [asdict(kernel) for kernel in compiled.kernels],
    }
    store.store(f"{key}.json", json.dumps(record).encode())
    return replace(compiled, load_s=time.perf_counter() - started)


def compile_cubin(
    source: str,
    arch: str = "sm_90a",
    flags: Sequence[str] = (),
    *,
    compiler: str = "nvrtc",
    cache_folder: Path | None = None,
    use_cache: bool = True,
) -> CompiledKernel:
    """Return the cubin of a self-contained CUDA source, from the cache if it was compiled before.

    arch: "sm_80", "sm_90a", ... No GPU or driver is needed. cache_folder: None for the user's cache.
    Raises: KernelCompileError when the compiler is missing or refuses the source (message: its first lines; `log`: all).
    """
    request = CompileRequest(source=source, arch=arch, flags=tuple(flags), compiler=compiler)
    return compile_request(request, cache_folder, use_cache=use_cache)


def compile_ptx(source: str, arch: str = "sm_90a", flags: Sequence[str] = (), *, compiler: str = "nvrtc") -> str:
    """Return the PTX of a source for the virtual architecture of `arch`; not cached."""
    compiler_version(compiler)  # refuses an unknown name
    run = run_nvcc if compiler == "nvcc" else run_nvrtc
    data, _ = run(source, arch, [*COMMON_FLAGS, *flags], "ptx")
    return data.rstrip(b"\0").decode()


def disassemble(cubin: bytes) -> str:
    """Return the SASS of a cubin by nvdisasm or cuobjdump. Raises: KernelCompileError when neither is installed."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "kernel.cubin"
        path.write_bytes(cubin)
        try:
            command = [find_tool("nvdisasm"), "--no-dataflow", str(path)]
        except KernelCompileError:
            command = [find_tool("cuobjdump"), "-sass", str(path)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise KernelCompileError(f"{Path(command[0]).name} refuses the cubin: {result.stderr.strip()[:300]}")
        return result.stdout
