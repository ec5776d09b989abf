"""Build a CUDA source for this computer's processor: the same text, after host_shim.h, linked with the host runtime.

Invariant: what is built is determined by the sources, the flags and the compiler's version, and is built once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from workbench.codegen.cuda.content_cache import ContentCache, content_hash, user_cache_folder
from workbench.errors import HostCompileError

RUNTIME_FILES = ("host_runtime.cpp", "host_warp.h", "host_threads.h", "host_memory.h", "host_shim.h", "intrinsics.cuh")
FLAGS = ("-std=c++17", "-g1", "-fno-pie", "-w")
RUNTIME_LEVEL, KERNEL_LEVEL = "-O2", "-O1"  # kernels: -O2 builds half as fast again and runs no faster
KERNEL_FLAGS = (
    "-fno-exceptions",
    "-fno-strict-aliasing",  # kernels reinterpret pointers
    "-ffp-contract=off",
    "-ftrivial-auto-var-init=pattern",  # a register that is read before it is set gives nonsense, not zero
    "-fstack-clash-protection",  # large local arrays touch the guard page below a fiber's stack
)
# -fsanitize=thread calls our callbacks at every memory access; the library of that name is never linked
INSTRUMENT_FLAGS = ("-fsanitize=thread", "-fsanitize=bounds", "-fsanitize-undefined-trap-on-error")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel: kind is p (pointer), i, u, f (numbers) or b (other bytes); sizes in bytes."""

    kind: str
    bytes: int
    is_constant: bool
    pointee_bytes: int


@dataclass(frozen=True, slots=True)
class HostProgram:
    """A kernel built for the host: where it lies, what it takes, and how long this call built (0 from the cache)."""

    path: Path
    parameters: tuple[Parameter, ...]
    compile_s: float


def find_compiler(name: str) -> str:
    """Return the path of the C++ compiler. Raises: HostCompileError when there is none."""
    found = shutil.which(name)
    if found is None:
        raise HostCompileError(f"no C++ compiler {name!r} on the PATH; install g++ to run kernels on the host")
    return found


@cache
def compiler_version(path: str) -> str:
    """Return the compiler's first line about itself."""
    result = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return result.stdout.partition("\n")[0]


@cache
def linker_flags() -> tuple[str, ...]:
    """Return the flags that choose gold where it is installed: it links a kernel in a fourth of the default's time."""
    return ("-fuse-ld=gold",) if shutil.which("ld.gold") else ()


def run_compiler(command: Sequence[str], what: str) -> None:
    """Run one compiler command. Raises: HostCompileError with the first lines of its complaint."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        errors = [line for line in result.stderr.splitlines() if "error" in line or "undefined" in line]
        shown = "\n".join((errors or result.stderr.splitlines())[:12])
        raise HostCompileError(f"{what} does not compile for the host:\n{shown}")


def build_runtime(compiler: str, cache_store: ContentCache, flags: Sequence[str]) -> Path:
    """Return the object file of the host runtime, compiled at most once for a compiler and its flags."""
    folder = resources.files(__package__)
    texts = [(folder / name).read_text(encoding="utf-8") for name in RUNTIME_FILES]
    name = f"runtime-{content_hash(compiler_version(compiler), *flags, *texts)}.o"
    if not cache_store.path(name).exists():
        with tempfile.TemporaryDirectory() as scratch, resources.as_file(folder) as place:
            built = Path(scratch) / "runtime.o"
            command = [compiler, *FLAGS, RUNTIME_LEVEL, *flags, "-c", str(place / RUNTIME_FILES[0]), "-o", str(built)]
            run_compiler(command, "the host runtime")
            cache_store.store(name, built.read_bytes())
    return cache_store.path(name)


def parse_parameters(text: str) -> tuple[Parameter, ...]:
    """Read what the program prints about its kernel: lines `kind bytes constant pointee_bytes`."""
    rows = [line.split() for line in text.splitlines()]
    return tuple(Parameter(kind, int(size), constant == "1", int(pointee)) for kind, size, constant, pointee in rows)


def build_for_host(
    source: str,
    kernel: str,
    *,
    instrument: bool = True,
    compiler: str = "g++",
    cache_folder: Path | None = None,
    flags: Sequence[str] = (),
    portable_fibers: bool = False,
) -> HostProgram:
    """Return the program that runs `kernel` of `source` on the host.

    `instrument`: check every memory access, not only those of intrinsics. `flags`: more compiler flags for the kernel.
    `portable_fibers`: switch threads by ucontext also where there is a faster way (x86-64).
    Raises: HostCompileError when there is no compiler, or with its complaint.
    """
    path = find_compiler(compiler)
    store = ContentCache(cache_folder or user_cache_folder("host"))
    runtime = build_runtime(path, store, ["-DWB_UCONTEXT"] if portable_fibers else [])
    kernel_flags = [*FLAGS, KERNEL_LEVEL, *KERNEL_FLAGS, *(INSTRUMENT_FLAGS if instrument else ()), *flags]
    key = f"kernel-{content_hash(runtime.name, source, kernel, *kernel_flags)}"
    described = store.load(f"{key}.txt")
    if described is not None and store.path(key).exists():
        return HostProgram(store.path(key), parse_parameters(described.decode()), 0.0)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch, resources.as_file(resources.files(__package__)) as place:
        folder = Path(scratch)
        (folder / "kernel.cu").write_text(source, encoding="utf-8")
        main = f'#include "host_shim.h"\n#include "kernel.cu"\nWB_HOST_KERNEL({kernel})\n'
        (folder / "main.cpp").write_text(main, encoding="utf-8")
        prefix = f"-fdebug-prefix-map={scratch}{os.sep}="
        compile_command = [path, *kernel_flags, prefix, f"-I{place}", "-c", str(folder / "main.cpp")]
        run_compiler([*compile_command, "-o", str(folder / "main.o")], f"kernel {kernel!r}")
        link = [path, "-no-pie", *linker_flags(), str(folder / "main.o"), str(runtime), "-lm"]
        run_compiler([*link, "-o", str(folder / "program")], f"kernel {kernel!r}")
        text = subprocess.run([str(folder / "program"), "describe"], capture_output=True, text=True, check=True).stdout
        program = store.store(key, (folder / "program").read_bytes(), mode=0o755)
        store.store(f"{key}.txt", text.encode())
    return HostProgram(program, parse_parameters(text), time.perf_counter() - started)


def source_lines(program: Path, addresses: Sequence[str]) -> list[int | None]:
    """Return, for return addresses in the program, the line of kernel.cu they stand on (the outermost: in the kernel).

    None where binutils' addr2line is missing or knows no line.
    """
    tool = shutil.which("addr2line")
    if tool is None or not addresses:
        return [None] * len(addresses)
    calls = [hex(max(int(address, 16) - 1, 0)) for address in addresses]  # a return address is one past the call
    lines: list[int | None] = []
    for call in calls:
        command = [tool, "-i", "-e", str(program), call]
        text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        numbers = [
            row.rpartition(":")[2].split()[0]
            for row in text.splitlines()
            if row.rpartition(":")[0].endswith("kernel.cu")
        ]
        known = [int(number) for number in numbers if number.isdigit()]
        lines.append(known[-1] if known else None)
    return lines
