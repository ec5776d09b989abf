"""Every intrinsic of the device header, alone, on the host against NumPy; host and device know the same names."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from workbench.codegen.cuda.header import HEADER_FILES, device_header, kernel_source
from workbench.codegen.cuda.host_run import HostOptions, run_on_host
from workbench.codegen.cuda.selftest import intrinsic_cases
from workbench.codegen.cuda.selftest.case import IntrinsicCase, from_bf16, to_bf16, to_tf32
from workbench.ops.registry import operators

CASES = {case.name: case for case in intrinsic_cases()}
FUNCTION = re.compile(r"WB_DEVICE\s+[\w:<>, ]+?[&* ]\s*(\w+)\(")
# helpers of one side that kernels do not call
NOT_FOR_KERNELS = {"shared_address", "round_to_f16", "round_to_bf16", "ldmatrix_host", "mma_host", "exchange_host"} | {
    "warpgroup_fence", "warpgroup_wait", "keep_register", "warpgroup_descriptor", "run",
}  # fmt: skip


def package_text(name: str) -> str:
    return (resources.files("workbench.codegen.cuda") / name).read_text(encoding="utf-8")


def function_names(text: str) -> set[str]:
    return {name for name in FUNCTION.findall(text) if name not in NOT_FOR_KERNELS and not name.startswith("__")}


@pytest.mark.parametrize("name", CASES)
def test_intrinsic_on_the_host(name: str, host_cache: Path) -> None:
    case = CASES[name]
    for seed in (0, 1, 7):
        run = run_on_host(
            case.source, case.launch, case.arguments, HostOptions(seed=seed, keep=case.keep, cache_folder=host_cache)
        )
        assert case.complaint(run.outputs) == ""


def test_the_header_includes_nothing() -> None:
    assert "#include" not in kernel_source("")
    assert "#pragma once" not in device_header()


def test_every_name_is_exercised() -> None:
    bodies = "\n".join(case.body for case in CASES.values())
    tiles = package_text(HEADER_FILES[1])
    names = {name for part in HEADER_FILES for name in function_names(package_text(part))}
    assert len(names) > 105
    # composed helpers count as exercised when the header itself calls them from something that is
    missing = {name for name in names if not re.search(rf"\b{name}\b", bodies)} - {"swizzle_chunk"}
    assert "swizzle_chunk<" in tiles
    assert missing == set()


def emitter_text() -> str:
    """All the emitter's own source, comments and docstrings aside."""
    folder = resources.files("workbench.codegen.cuda")
    texts = [entry.read_text(encoding="utf-8") for entry in folder.iterdir() if entry.name.endswith(".py")]
    texts += [spec.scalar_c for spec in operators() if isinstance(spec.scalar_c, str)]
    return "\n".join(line for text in texts for line in text.splitlines() if not line.lstrip().startswith("#"))


def test_the_emitter_uses_every_name_of_part_three() -> None:
    """What no kernel calls is not in the header; what only the header calls is called by something that kernels call."""
    text = emitter_text()
    part = package_text(HEADER_FILES[2])
    names = function_names(part)
    written = {name: name.replace("load_b_pair", "{load}").replace("load_b", "{load}") for name in names}
    direct = {name for name in names if re.search(rf"\b{name}\b", text) or f"{written[name]}<" in text}
    called = {name for name in names if len(re.findall(rf"\b{name}[<(]", part)) > 1}
    assert names - direct - called == set()


def test_host_and_device_define_the_same_names() -> None:
    device = function_names(package_text("intrinsics.cuh"))
    host = function_names(package_text("host_shim.h"))
    assert device == host


def test_a_wrong_answer_is_told() -> None:
    case = CASES["vectors"]
    wrong = case.expected[0].copy()
    wrong[17] += 1
    assert "first at (17,)" in case.complaint((wrong,))
    unwritten = case.expected[0].copy()
    unwritten[3] = np.nan
    assert "1 of" in case.complaint((unwritten,))
    assert "shape" in case.complaint((wrong[:-1],))


@pytest.mark.parametrize(
    ("case", "old", "new"),
    [
        ("ldmatrix", "ldmatrix_x4(r + 3, s + 8 * l)", "ldmatrix_x4(r + 3, s + 8 * (l ^ 1))"),
        ("fragments f16", "load_a_transposed(fa, a_cols, 0, k)", "load_a_transposed(fa, a_cols, 0, 0)"),
        ("fragments float", "load_b(fb, b_rows, k, 8 * n)", "load_b(fb, b_rows, k, 0)"),
        ("mma f16", "fa[i] = pair(a + (g + 8 * (i % 2))", "fa[i] = pair(a + (g + 8 * (i / 2))"),
        ("warps", "warp_sum<8, 4>(x)", "warp_sum<8>(x)"),
        ("clusters", "cluster_sum<4, 4>", "cluster_sum<3, 4>"),
        ("asynchronous copies", "l % 5 * 4", "16"),
        ("conversions", "from_f32<f16>(to_f32(x[i]))", "f16{(u16)(f32_to_bits(x[i]) >> 16)}"),
    ],
)
def test_a_mutated_kernel_fails_its_check(case: str, old: str, new: str, host_cache: Path) -> None:
    right = CASES[case]
    assert old in right.body
    run = run_on_host(
        kernel_source(right.body.replace(old, new)),
        right.launch,
        right.arguments,
        HostOptions(cache_folder=host_cache, keep=right.keep, races=False),
    )
    assert right.complaint(run.outputs) != ""


def test_roundings_of_the_reference() -> None:
    assert to_bf16(np.float32(1.0)) == 0x3F80
    assert to_bf16(np.array([1.00390625], np.float32))[0] == 0x3F80  # a tie goes to even
    assert to_bf16(np.array([1.01171875], np.float32))[0] == 0x3F82
    assert from_bf16(np.array([0xC040], np.uint16))[0] == -3.0
    assert to_tf32(np.float32(1 + 2**-11)) == np.float32(1 + 2**-10)  # a tie goes away from zero


@pytest.mark.parametrize("name", ["matmul f16 100x136x200", "matmul float 70x68x100", "clusters", "bulk copies"])
def test_portable_fibers_agree(name: str, host_cache: Path) -> None:
    case: IntrinsicCase = CASES[name]
    options = HostOptions(seed=3, keep=case.keep, cache_folder=host_cache, portable_fibers=True)
    assert case.complaint(run_on_host(case.source, case.launch, case.arguments, options).outputs) == ""
