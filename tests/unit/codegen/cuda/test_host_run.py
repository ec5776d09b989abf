"""Kernels on the host: right ones run, each kind of misbehaviour is found and named, nothing hangs."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.codegen.cuda.header import kernel_source
from workbench.codegen.cuda.host_run import HostOptions, HostRun, run_on_host
from workbench.codegen.cuda.launch_shape import LaunchShape
from workbench.codegen.cuda.selftest.tensor_cores import matmul_case
from workbench.errors import HostCompileError, HostRunError, LaunchShapeError

MATMUL = matmul_case("f16", 100, 136, 200)
HEAD = 'extern "C" __global__ void k('


def run(
    body: str,
    arguments: Sequence[Any],
    cache: Path,
    *,
    threads: int = 64,
    shared: int = 1024,
    grid: int = 1,
    **options: Any,
) -> HostRun:
    cluster = options.pop("cluster", 1)
    launch = LaunchShape(kernel="k", grid=(grid, 1, 1), threads=threads, cluster=(cluster, 1, 1), shared_bytes=shared)
    return run_on_host(kernel_source(body), launch, arguments, HostOptions(cache_folder=cache, **options))


def outcome(source: str, options: HostOptions) -> tuple[HostRunError | None, str]:
    """Run a changed product: the error it ends with, or what is wrong with its numbers."""
    try:
        found = run_on_host(source, MATMUL.launch, MATMUL.arguments, options)
    except HostRunError as error:
        return error, ""
    return None, MATMUL.complaint(found.outputs)


def test_a_product_and_its_counts(host_cache: Path) -> None:
    found = run_on_host(MATMUL.source, MATMUL.launch, MATMUL.arguments, HostOptions(cache_folder=host_cache))
    (a, b), (c,) = MATMUL.arguments[:2], found.outputs
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert np.linalg.norm(c - exact) / np.linalg.norm(exact) < 1e-6
    warps, steps = 6 * 4, 7
    assert found.blocks == 6
    assert found.mma == warps * steps * 2 * 8
    assert found.ldmatrix == warps * steps * 2 * (1 + 4)
    assert found.ldmatrix_conflicts == 0


def test_runs_are_the_same_for_every_order_of_threads(host_cache: Path) -> None:
    outputs = [
        run_on_host(
            MATMUL.source,
            MATMUL.launch,
            MATMUL.arguments,
            HostOptions(seed=seed, instrument=instrument, races=instrument, cache_folder=host_cache),
        ).outputs[0]
        for seed in (0, 1, 2, 3, 11)
        for instrument in (True, False)
    ]
    for output in outputs[1:]:
        np.testing.assert_array_equal(output, outputs[0])


@pytest.mark.parametrize(("seed", "instrument"), [(0, True), (1, True), (5, True), (0, False), (5, False)])
@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        ("    block_barrier();\n", "", {"race", "copy in flight"}),
        ("cp_async_wait<STAGES - 2>()", "cp_async_wait<STAGES - 1>()", {"copy in flight"}),
        ("cp_async_wait<STAGES - 2>();", "", {"copy in flight"}),
        ("load(step + STAGES - 1);", "load(step + STAGES);", {"copy in flight", "race"}),
        ("row < m && col < n", "row <= m && col < n", {"out of bounds"}),
        ("m - m0, k - step * BK)", "64, k - step * BK)", {"out of bounds"}),
        ("k - step * BK, n - n0)", "k - step * BK + 1, n - n0)", {"out of bounds"}),
        ("load_a(fa, ta, warp_index() * 16, kk)", "load_a(fa, ta, warp_index() * 16 + 1, kk)", {"out of bounds"}),
    ],
)
def test_a_broken_product_is_found(
    old: str, new: str, kinds: set[str], seed: int, instrument: bool, host_cache: Path
) -> None:
    source = kernel_source(MATMUL.body.replace(old, new))
    error, complaint = outcome(
        source, HostOptions(cache_folder=host_cache, seed=seed, instrument=instrument, races=instrument)
    )
    if error is None:  # without the race detector a run can end; then its numbers show it
        assert not instrument
        assert complaint != ""
    else:
        assert error.kind in kinds
        assert error.line is not None
        line = source.splitlines()[error.line - 1]
        assert any(word in line for word in ("load", "global_to_shared", "c[(i64)row"))


def test_a_wrong_swizzle_gives_a_wrong_product(host_cache: Path) -> None:
    # the writer keeps chunks in one order, the reader looks for them in another
    source = MATMUL.body.replace("    TileA ta(s);", "    SharedTile<f16, 64, BK, false> ta(s);")
    assert source != MATMUL.body
    found = run_on_host(kernel_source(source), MATMUL.launch, MATMUL.arguments, HostOptions(cache_folder=host_cache))
    assert "wrong" in MATMUL.complaint(found.outputs)


def test_tiles_without_swizzle_show_bank_conflicts(host_cache: Path) -> None:
    plain = MATMUL.body.replace("SharedTile<f16, 64, BK>", "SharedTile<f16, 64, BK, false>")
    plain = plain.replace("SharedTile<f16, BK, 64>", "SharedTile<f16, BK, 64, false>")
    found = run_on_host(kernel_source(plain), MATMUL.launch, MATMUL.arguments, HostOptions(cache_folder=host_cache))
    assert MATMUL.complaint(found.outputs) == ""
    # rows of 64 B: 4 of 8 rows share a bank group; rows of 128 B: all 8 do
    loads = found.ldmatrix // 5
    assert found.ldmatrix_conflicts == loads * 4 * 3 + 4 * loads * 4 * 7


FAULTS: list[tuple[str, str, str, str]] = [
    ("race", "float* x) { WB_DYNAMIC_SHARED(s); s[thread_index() / 2] = 1; x[thread_index()] = 0; }", "race", "written by"),
    ("race between blocks", "float* x) { x[thread_index()] = (float)blockIdx.x; }", "race", "another cluster"),
    ("read after the end", "const float* y, float* x) { x[thread_index()] = y[thread_index() + 1]; }", "out of bounds",
     "0 bytes past the end of argument 0 (256 bytes)"),
    ("read before the start", "const float* y, float* x) { x[thread_index()] = y[(int)thread_index() - 1]; }",
     "out of bounds", "4 bytes before the start of argument 0"),
    ("shared memory", "float* x) { WB_DYNAMIC_SHARED(s); s[1024 - thread_index()] = 1; x[thread_index()] = 0; }",
     "out of bounds", "past the end of shared memory"),
    ("tile", "float* x) { WB_DYNAMIC_SHARED(s); SharedTile<f16, 8, 8> t(s); x[thread_index()] = to_f32(*t.at(8, 0)); }",
     "out of bounds", "tile row 8 outside 0 .. 7"),
    ("write to input", "const float* y, float* x) { x[thread_index()] = 0; const_cast<float*>(y)[0] = 1; }",
     "write to input", "argument 0"),
    ("misaligned vector", "const float* y, float* x) { register_to_global(x, global_to_register<4>(y + thread_index() % 4)); }",
     "misaligned", "16-byte alignment"),
    ("misaligned word", "const float* y, float* x) { x[thread_index()] = *(const float*)((const char*)y + 2); }",
     "misaligned", "4-byte alignment"),
    ("divergent barrier", "float* x) { x[thread_index()] = 0; if (thread_index() < 32) block_barrier(); }", "deadlock",
     "32 threads from thread 0 of block rank 0 at block_barrier"),
    ("two barriers", "float* x) { x[thread_index()] = 0; if (thread_index() < 32)\n block_barrier();\n else\n block_barrier(); }",
     "divergence", "from line"),
    ("half a warp", "float* x) { x[thread_index()] = thread_index() % 32 < 16 ? warp_sum(1.0f) : 0.0f; }", "deadlock",
     "at shuffle_xor"),
    ("two collectives", "float* x) { const bool low = thread_index() % 32 < 16; u32 r = low ? warp_ballot(true) : shuffle(1u, 0);"
     " x[thread_index()] = (float)r; }", "divergence", "warp_ballot"),
    ("cluster arrive", "float* x) { x[thread_index()] = 0; cluster_arrive(); cluster_arrive(); }", "cluster", "twice"),
    ("wait for nobody", "float* x) { WB_DYNAMIC_SHARED(s); Barrier* b = (Barrier*)s; if (thread_index() == 0) barrier_init(b, 2);"
     " block_barrier(); if (thread_index() == 0) barrier_arrive(b); barrier_wait(b, 0); x[thread_index()] = 0; }", "deadlock",
     "at barrier_wait"),
    ("no mbarrier", "float* x) { WB_DYNAMIC_SHARED(s); barrier_arrive((Barrier*)s); x[0] = 0; }", "barrier", "not initialised"),
    ("local array", "const int* n, float* x) { float a[4] = {1, 2, 3, 4}; x[thread_index()] = a[n[0]]; }", "undefined", "local"),
    ("stack", "const int* n, float* x) { volatile float a[65536]; a[n[0]] = 1; x[thread_index()] = a[n[0]]; }", "stack overflow",
     "local arrays"),
    ("division", "const int* n, float* x) { x[thread_index()] = (float)(7 / (n[0] - 9)); }", "arithmetic", "division by zero"),
    ("wild pointer", "const long* n, float* x) { x[0] = *(float*)(n[0] + 64); }", "out of bounds", "access at"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "body", "kind", "words"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_a_fault_is_named(name: str, body: str, kind: str, words: str, host_cache: Path) -> None:
    given: list[Any] = [np.empty(64, np.float32)]
    if "const float*" in body:
        given.insert(0, np.arange(64, dtype=np.float32))
    if "const int*" in body:
        given.insert(0, np.array([9], np.int32))
    if "const long*" in body:
        given.insert(0, np.array([9], np.int64))
    with pytest.raises(HostRunError) as caught:
        run(HEAD + body, given, host_cache, grid=2 if name == "race between blocks" else 1)
    assert (caught.value.kind, words in str(caught.value)) == (kind, True), str(caught.value)


CLUSTER = """extern "C" __global__ void WB_CLUSTER(2, 1, 1) k(float* x) {
  WB_DYNAMIC_SHARED(s);
  float* mine = reinterpret_cast<float*>(s);
  mine[thread_index()] = (float)cluster_rank();
  cluster_barrier();
  x[blockIdx.x * 64 + thread_index()] = cluster_sum<2>(mine + thread_index()).value[0];
  cluster_barrier();
}
"""


def test_a_cluster_and_its_barriers(host_cache: Path) -> None:
    given = [np.empty(256, np.float32)]
    right = run(CLUSTER, given, host_cache, grid=4, cluster=2)
    np.testing.assert_array_equal(right.outputs[0], np.ones(256))
    last = "  cluster_barrier();\n}"
    for seed in (0, 1):
        with pytest.raises(HostRunError, match="which has ended") as caught:
            run(CLUSTER.replace(last, "}"), given, host_cache, grid=4, cluster=2, seed=seed, instrument=False)
        assert caught.value.kind == "cluster"
    first = "  cluster_barrier();\n  x["
    with pytest.raises(HostRunError, match="no barrier between"):
        run(CLUSTER.replace(first, "  x["), given, host_cache, grid=4, cluster=2)
    plain = CLUSTER.replace("cluster_sum<2>(mine + thread_index()).value[0]", "mine[thread_index() + 2048 * 1024]")
    with pytest.raises(HostRunError, match=r"past the end of shared memory|in no buffer|shared memory of block rank"):
        run(plain, given, host_cache, grid=4, cluster=2)


def test_an_endless_loop_is_ended(host_cache: Path) -> None:
    body = HEAD + "volatile int* x) { while (x[0] == 0) { } x[1] = 1; }"
    with pytest.raises(HostRunError, match="timeout") as caught:
        run(body, [np.zeros(2, np.int32)], host_cache, keep=frozenset({0}), timeout_s=0.5)
    assert caught.value.kind == "timeout"


SCALARS = (
    HEAD + "float* x, const u16* skipped, int i, i64 big, float f, bool flag, u8 small) { if (thread_index()) return;"
)
SCALARS += " x[0] = (float)i; x[1] = (float)big; x[2] = f; x[3] = flag; x[4] = small; x[5] = skipped == nullptr; }"


def test_scalars_and_null(host_cache: Path) -> None:
    found = run(SCALARS, [np.empty(6, np.float32), None, -3, 2**40, 0.5, True, np.uint8(200)], host_cache)
    np.testing.assert_array_equal(found.outputs[0], [-3, 2.0**40, 0.5, 1, 200, 1])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([np.empty(6, np.float32), None, -3, 1, 0.5, True], "takes 7 arguments"),
        ([np.empty(6, np.float64), None, -3, 1, 0.5, True, 1], "4-byte elements; float64 has 8"),
        ([np.empty(6, np.float32), None, 2**31, 1, 0.5, True, 1], "no int32"),
        ([np.empty(6, np.float32), None, 1.5, 1, 0.5, True, 1], "no int32"),
        ([np.empty(6, np.float32), None, -3, 1, 0.5, True, 256], "no uint8"),
        ([np.empty(6, np.float32), None, np.zeros(1), 1, 0.5, True, 1], "takes a number of 4 bytes"),
        ([np.empty((6, 2), np.float32)[:, 0], None, -3, 1, 0.5, True, 1], "C-contiguous"),
        ([0, None, -3, 1, 0.5, True, 1], "is a pointer"),
    ],
)
def test_arguments_that_do_not_fit(arguments: list[Any], words: str, host_cache: Path) -> None:
    with pytest.raises(HostRunError, match=words) as caught:
        run(SCALARS, arguments, host_cache)
    assert caught.value.kind == "arguments"


def test_outputs_are_poisoned_and_inputs_kept(host_cache: Path) -> None:
    body = HEAD + "float* x, float* y) { if (thread_index() == 0) { x[1] = 5; y[1] = 6; } }"
    given = [np.ones(3, np.float32), np.ones(3, np.float32)]
    x, y = run(body, given, host_cache, keep=frozenset({1})).outputs
    assert np.isnan(x[[0, 2]]).all()
    assert x[1] == 5
    np.testing.assert_array_equal(y, [1, 6, 1])
    np.testing.assert_array_equal(given[0], [1, 1, 1])


def test_shared_memory_starts_as_nan(host_cache: Path) -> None:
    body = HEAD + "float* x) { WB_DYNAMIC_SHARED(s); x[thread_index()] = reinterpret_cast<float*>(s)[thread_index()]; }"
    assert np.isnan(run(body, [np.empty(64, np.float32)], host_cache).outputs[0]).all()


def test_what_cannot_be_built(host_cache: Path, tmp_path: Path) -> None:
    with pytest.raises(HostCompileError, match="undeclared_thing"):
        run(HEAD + "float* x) { x[0] = undeclared_thing; }", [np.empty(1, np.float32)], host_cache)
    with pytest.raises(HostCompileError, match="no C\\+\\+ compiler 'no-such-compiler'"):
        run(HEAD + "float* x) { }", [np.empty(1, np.float32)], tmp_path, compiler="no-such-compiler")


def test_a_launch_against_the_attributes(host_cache: Path) -> None:
    with pytest.raises(LaunchShapeError, match="its source says"):
        run(CLUSTER, [np.empty(256, np.float32)], host_cache, grid=4, cluster=4)


def test_a_built_program_is_used_again(host_cache: Path) -> None:
    body = HEAD + "float* x) { x[thread_index()] = 1; } // built here first"
    given = [np.empty(64, np.float32)]
    first, second = run(body, given, host_cache), run(body, given, host_cache)
    assert first.compile_s > 0
    assert second.compile_s == 0
    assert second.outputs[0].sum() == 64


def test_the_error_pickles() -> None:
    error = pickle.loads(pickle.dumps(HostRunError("words", kind="race", line=7)))
    assert (str(error), error.kind, error.line) == ("words", "race", 7)
