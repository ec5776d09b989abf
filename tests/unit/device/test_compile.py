"""Cubins without a GPU: what they hold, what they need, how long they take, and what a refusal says."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from workbench.codegen.cuda.header import kernel_source
from workbench.codegen.cuda.selftest import intrinsic_cases
from workbench.codegen.cuda.selftest.tensor_cores import matmul_case
from workbench.device import compile as compile_module
from workbench.device.compile import (
    CompiledKernel,
    compile_cubin,
    compile_ptx,
    complete_elf,
    disassemble,
    error_message,
    parse_usage,
)
from workbench.errors import KernelCompileError

MATMUL = matmul_case("f16", 64, 64, 64)
CASES = {case.name: case for case in intrinsic_cases()}
WRONG = "\n".join(["", "__global__ void k(float* x) {", "  x[0] = missing_name;", "}"])


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_product_uses_tensor_cores(arch: str, cubin_cache: Path, disassembler: None) -> None:
    compiled = compile_cubin(MATMUL.source, arch, cache_folder=cubin_cache)
    sass = disassemble(compiled.cubin)
    for instruction in ("HMMA.16816.F32", "LDSM.16.M88.4", "LDSM.16.MT88.4", "LDGSTS.E.BYPASS.LTC128B.128"):
        assert instruction in sass
    usage = compiled.usage("matmul")
    assert 32 < usage.registers <= 128
    assert (usage.spill_bytes, usage.stack_bytes, usage.shared_bytes) == (0, 0, 0)
    assert (compiled.registers, compiled.spills, compiled.shared_bytes) == (usage.registers, 0, 0)
    with pytest.raises(KernelCompileError, match="no kernel 'other', only \\['matmul'\\]"):
        compiled.usage("other")


@pytest.mark.parametrize("name", CASES)
def test_every_intrinsic_compiles(name: str, cubin_cache: Path) -> None:
    case = CASES[name]
    for arch in ("sm_80", "sm_90a"):
        if arch >= case.needs:
            assert compile_cubin(case.source, arch, cache_folder=cubin_cache).spills == 0


def test_hopper_only_is_refused_before_it(cubin_cache: Path) -> None:
    with pytest.raises(KernelCompileError, match="Barrier"):
        compile_cubin(CASES["bulk copies"].source, "sm_80", cache_folder=cubin_cache)


def test_header_and_kernel_compile_in_a_fraction_of_a_second(cubin_cache: Path) -> None:
    seconds = []
    for attempt in range(3):  # processor time, and the least of three: other work on this machine only adds
        started = time.process_time()
        compile_cubin(f"{MATMUL.source}// {attempt}\n", cache_folder=cubin_cache)
        seconds.append(time.process_time() - started)
    print(f"NVRTC, header and matmul kernel, sm_90a: {min(seconds):.3f} s of one core")
    assert min(seconds) < 0.5  # 0.15 s measured; the target is 0.3


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[: len(data) // 2], lambda data: b"{}"])
@pytest.mark.parametrize("suffix", ["cubin", "json"])
def test_a_damaged_entry_of_the_cache_is_compiled_anew(
    suffix: str, damage: Callable[[bytes], bytes], tmp_path: Path, cubin_cache: Path
) -> None:
    source = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] = 1.0f; }\n'
    first = compile_cubin(source, cache_folder=tmp_path)
    (file,) = tmp_path.glob(f"*.{suffix}")
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    again = compile_cubin(source, cache_folder=tmp_path)
    assert not again.is_cached
    assert again.cubin == again.path.read_bytes() == first.cubin
    assert compile_cubin(source, cache_folder=tmp_path).is_cached


def test_the_cache(tmp_path: Path, cubin_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compile_cubin(MATMUL.source, cache_folder=tmp_path)
    assert not first.is_cached
    assert first.path.read_bytes() == first.cubin

    def fail(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(compile_module, "run_nvrtc", fail)
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        second = compile_cubin(MATMUL.source, cache_folder=tmp_path)
        seconds.append(time.perf_counter() - started)
        assert second.is_cached
    assert min(seconds) < 0.02
    assert (second.cubin, second.kernels, second.log, second.path) == (
        first.cubin,
        first.kernels,
        first.log,
        first.path,
    )
    for change in ({"arch": "sm_80"}, {"flags": ["-lineinfo"]}, {"use_cache": False}):
        with pytest.raises(AssertionError, match="compiled again"):
            compile_cubin(MATMUL.source, cache_folder=tmp_path, **change)
    with pytest.raises(AssertionError, match="compiled again"):
        compile_cubin(MATMUL.source + " ", cache_folder=tmp_path)


def test_a_half_written_entry_is_not_used(tmp_path: Path, cubin_cache: Path) -> None:
    first = compile_cubin(MATMUL.source, cache_folder=tmp_path)
    first.path.with_suffix(".json").unlink()
    assert not compile_cubin(MATMUL.source, cache_folder=tmp_path).is_cached


def test_nvcc_gives_the_same_kernel(nvcc: str, cubin_cache: Path, disassembler: None) -> None:
    compiled = compile_cubin(MATMUL.source, compiler="nvcc", cache_folder=cubin_cache)
    assert compiled.compiler.startswith("nvcc")
    assert "HMMA.16816.F32" in disassemble(compiled.cubin)
    assert compiled.usage("matmul").spill_bytes == 0
    assert compile_cubin(MATMUL.source, compiler="nvcc", cache_folder=cubin_cache).is_cached
    assert "mma.sync" in compile_ptx(MATMUL.source, compiler="nvcc")
    with pytest.raises(KernelCompileError, match="missing_name") as caught:
        compile_cubin(WRONG, compiler="nvcc", cache_folder=cubin_cache)
    assert "kernel.cu(3)" in caught.value.log


def test_ptx(cubin_cache: Path) -> None:
    ptx = compile_ptx(MATMUL.source, "sm_90a")
    assert ".target sm_90a" in ptx
    assert "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" in ptx


def test_a_refusal_names_the_line(cubin_cache: Path) -> None:
    with pytest.raises(KernelCompileError) as caught:
        compile_cubin(WRONG, cache_folder=cubin_cache)
    assert 'kernel.cu(3): error: identifier "missing_name" is undefined' in str(caught.value)
    assert "missing_name" in caught.value.log


def test_an_unknown_compiler(cubin_cache: Path) -> None:
    with pytest.raises(KernelCompileError, match="unknown compiler 'clang'"):
        compile_cubin(WRONG, compiler="clang", cache_folder=cubin_cache)


def test_a_disassembler_refuses_rubbish(disassembler: None) -> None:
    with pytest.raises(KernelCompileError, match="refuses the cubin"):
        disassemble(b"no cubin")


LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_90a'
ptxas info    : Function properties for first
ptxas         .     816 bytes stack frame, 12 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 800 bytes cumulative stack size, 2048 bytes smem
ptxas info    : Compiling entry function 'second' for 'sm_90a'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 255 registers, 360 bytes cmem[0]
"""


def test_usage_of_several_kernels() -> None:
    first, second = parse_usage(LOG)
    assert (first.name, first.registers, first.spill_bytes, first.stack_bytes, first.shared_bytes) == (
        "first", 40, 24, 816, 2048,
    )  # fmt: skip
    assert (second.name, second.registers, second.spill_bytes, second.shared_bytes) == ("second", 255, 0, 0)
    assert parse_usage("nothing") == ()


def elf(length: int, end: int) -> bytes:
    """An ELF header of a file whose program headers end at `end`, cut to `length` bytes."""
    header = bytearray(64)
    header[:4] = b"\x7fELF"
    header[32:40] = (end - 56).to_bytes(8, "little")
    header[54:58] = (56).to_bytes(2, "little") + (1).to_bytes(2, "little")
    return bytes(header) + b"\x01" * (length - 64)


def test_the_byte_that_is_cut_off_comes_back() -> None:
    assert complete_elf(elf(199, 200)) == elf(199, 200) + b"\0"
    assert complete_elf(elf(200, 200)) == elf(200, 200)
    with pytest.raises(KernelCompileError, match="cut short: 150 bytes of 200"):
        complete_elf(elf(150, 200))
    with pytest.raises(KernelCompileError, match="no ELF"):
        complete_elf(b"PTX")


@pytest.mark.parametrize(
    ("log", "shown"),
    [("warning: a\nk.cu(1): error: b\nc", "k.cu(1): error: b"), ("only words", "only words"), ("", "no message")],
)
def test_messages(log: str, shown: str) -> None:
    text = error_message(log, "nvrtc", "sm_80")
    assert text.splitlines()[1] == shown
    assert "warning" not in text


def test_kernels_without_records_need_nothing() -> None:
    empty: Sequence[str] = ()
    compiled = CompiledKernel(
        cubin=b"",
        path=Path("x"),
        arch="sm_80",
        compiler="nvcc",
        log="",
        compile_s=0,
        load_s=0,
        is_cached=False,
        kernels=(),
    )
    assert (compiled.registers, compiled.spills, compiled.shared_bytes, list(empty)) == (0, 0, 0, [])


def test_the_source_needs_no_header_of_cuda() -> None:
    assert "#include" not in kernel_source("")
