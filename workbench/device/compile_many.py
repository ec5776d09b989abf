"""Compile many sources side by side, each in a process of its own, and say of each what became of it.

Invariant: one source that is refused, or that kills or stalls its compiler, costs only itself.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path

from workbench.device.compile import CompiledKernel, CompileRequest, compile_request
from workbench.device.worker import run_in_workers
from workbench.errors import KernelCompileError, WorkbenchError

MINUTE_S = 60.0


def compile_job(job: tuple[CompileRequest, Path | None]) -> CompiledKernel:
    """Compile one request into the cache folder; what a worker process runs."""
    request, cache_folder = job
    return compile_request(request, cache_folder)


def compile_guarded(job: tuple[CompileRequest, Path | None]) -> CompiledKernel | KernelCompileError:
    """Compile one request; return, not raise, the compiler's refusal."""
    try:
        return compile_job(job)
    except KernelCompileError as error:
        return error


def compile_many(
    requests: Sequence[CompileRequest],
    *,
    workers: int | None = None,
    executor: Executor | None = None,
    timeout_s: float = MINUTE_S,
    cache_folder: Path | None = None,
) -> list[CompiledKernel | KernelCompileError]:
    """Return a cubin or the refusal for each request, in order; equal requests are compiled once.

    workers: processes at most (None: as many as there are cores); with one, or one request, this process compiles.
    executor: run there instead (dask's client executor, ...); `timeout_s`, for each source, is then not enforced.
    """
    unique = list(dict.fromkeys(requests))
    jobs = [(request, cache_folder) for request in unique]
    count = min(len(jobs), workers or os.cpu_count() or 1)
    results: list[CompiledKernel | KernelCompileError]
    if executor is not None:
        results = list(executor.map(compile_guarded, jobs))
    elif count <= 1:
        results = [compile_guarded(job) for job in jobs]
    else:
        results = []
        for outcome in run_in_workers(compile_job, jobs, workers=count, timeout_s=timeout_s):
            if outcome.value is not None:
                results.append(outcome.value)
            elif isinstance(outcome.error, KernelCompileError):
                results.append(outcome.error)
            elif isinstance(outcome.error, WorkbenchError):
                raise outcome.error
            else:
                results.append(KernelCompileError(f"{outcome.kind}: {outcome.reason}"))
    by_request = dict(zip(unique, results, strict=True))
    return [by_request[request] for request in requests]
