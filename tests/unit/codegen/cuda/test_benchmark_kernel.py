"""The hand-written RMSNorm+Linear kernel on the device header, right on the host at reduced sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from workbench.codegen.cuda.header import kernel_source
from workbench.codegen.cuda.host_run import Argument, HostOptions, run_on_host
from workbench.codegen.cuda.launch_shape import LaunchShape
from workbench.errors import HostRunError

SHAPE = {"K_": 512, "N_": 128, "M_": 11, "S_": 2, "BN_": 64, "BK_": 64, "ST_": 3}


def launch(shape: dict[str, int]) -> LaunchShape:
    shared = max(shape["ST_"] * 2 * shape["BK_"] * (shape["BN_"] + 16), (64 * shape["BN_"] + 64) * 4)
    return LaunchShape(
        kernel="rms_norm_linear",
        grid=(shape["N_"] // shape["BN_"] * shape["S_"], 1, 1),
        threads=128,
        cluster=(shape["S_"], 1, 1),
        shared_bytes=shared,
    )


def options(shape: dict[str, int], cache: Path, seed: int) -> HostOptions:
    return HostOptions(seed=seed, cache_folder=cache, flags=tuple(f"-D{key}={value}" for key, value in shape.items()))


@pytest.mark.parametrize(
    "change", [{}, {"M_": 16, "S_": 4, "BK_": 128, "ST_": 2}, {"S_": 1, "BN_": 32, "M_": 1}], ids=["2", "4", "1"]
)
def test_rows_of_different_scale(change: dict[str, int], repository: Path, host_cache: Path) -> None:
    shape = SHAPE | change
    rng = np.random.default_rng(5)
    m, n, k = shape["M_"], shape["N_"], shape["K_"]
    x = (rng.standard_normal((m, k)) * np.exp(2 * rng.standard_normal((m, 1)))).astype(np.float16)
    w = (rng.standard_normal((k, n)) * 0.1).astype(np.float16)
    x64 = x.astype(np.float64)
    exact = x64 @ w.astype(np.float64) / np.sqrt((x64 * x64).mean(1, keepdims=True) + 1e-6)
    source = kernel_source((repository / "benchmarks/kernels/rms_norm_linear.cu").read_text(encoding="utf-8"))
    for seed in (0, 1, 9):
        arguments: list[Argument] = [x, w, np.empty((m, n), np.float16), 1e-6]
        run = run_on_host(source, launch(shape), arguments, options(shape, host_cache, seed))
        error = np.linalg.norm(run.outputs[0] - exact, axis=1) / np.linalg.norm(exact, axis=1)
        assert error.max() < 5e-4  # the rounding of fp16
        assert run.ldmatrix_conflicts == 0


def test_without_its_last_barrier(repository: Path, host_cache: Path) -> None:
    text = (repository / "benchmarks/kernels/rms_norm_linear.cu").read_text(encoding="utf-8")
    head, _, tail = text.rpartition("  cluster_barrier();\n")
    arguments: list[Argument] = [
        np.ones((11, 512), np.float16),
        np.ones((512, 128), np.float16),
        np.empty((11, 128), np.float16),
        1e-6,
    ]
    with pytest.raises(HostRunError) as caught:
        run_on_host(kernel_source(head + tail), launch(SHAPE), arguments, options(SHAPE, host_cache, 0))
    assert caught.value.kind == "cluster"
