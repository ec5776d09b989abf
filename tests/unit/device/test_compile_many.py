"""Many sources side by side: order, refusals, equal requests once, other executors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from workbench.device import compile_many as module
from workbench.device.compile import CompiledKernel, CompileRequest
from workbench.device.compile_many import compile_guarded, compile_many
from workbench.errors import KernelCompileError


def request(number: int) -> CompileRequest:
    return CompileRequest(source=f'extern "C" __global__ void k{number}(float* x) {{ x[0] = {number}; }}', arch="sm_80")


BROKEN = CompileRequest(source="broken", arch="sm_80")


def names(results: list[CompiledKernel | KernelCompileError]) -> list[str]:
    return [r.kernels[0].name if isinstance(r, CompiledKernel) else "refused" for r in results]


@pytest.mark.parametrize("workers", [1, 2])
def test_order_and_refusals(workers: int, cubin_cache: Path, tmp_path: Path) -> None:
    results = compile_many([request(1), BROKEN, request(2), request(1)], workers=workers, cache_folder=tmp_path)
    assert names(results) == ["k1", "refused", "k2", "k1"]
    assert len(list(tmp_path.glob("*.cubin"))) == 2
    again = compile_many([request(2)], workers=workers, cache_folder=tmp_path)
    assert [isinstance(r, CompiledKernel) and r.is_cached for r in again] == [True]


def test_another_executor(cubin_cache: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        assert names(compile_many([request(1), BROKEN], executor=executor, cache_folder=tmp_path)) == ["k1", "refused"]


def test_equal_requests_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def count(job: tuple[CompileRequest, Path | None]) -> KernelCompileError:
        seen.append(job[0])
        return KernelCompileError("counted")

    monkeypatch.setattr(module, "compile_guarded", count)
    results = compile_many([request(1), request(2), request(1)], workers=1)
    assert seen == [request(1), request(2)]
    assert len(results) == 3
    assert compile_guarded is not count


def test_nothing() -> None:
    assert compile_many([]) == []
