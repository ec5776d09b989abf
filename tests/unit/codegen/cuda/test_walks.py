"""Walks on the host: every element is visited by one thread, once; rows belong together; equal keys mean equal owners."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import pytest

from workbench.codegen.cuda.header import kernel_source
from workbench.codegen.cuda.host_run import HostOptions, run_on_host
from workbench.codegen.cuda.launch_shape import LaunchShape
from workbench.codegen.cuda.walks import (
    FragmentWalk,
    Nest,
    OperandWalk,
    ProductLayout,
    RowsWalk,
    Walk,
    choose_width,
    group_sizes,
    indented,
    loop,
    tile_base,
)


def layout(**given: int) -> ProductLayout:
    usual = {
        "matrices": 1, "row_tiles": 1, "column_tiles": 2, "depth_steps": 1, "depth_step": 16,
        "warp_rows": 1, "warp_columns": 1, "warp_depth": 1, "warps": 4,
    }  # fmt: skip
    return ProductLayout(**(usual | given))


def owners(walk: Walk, threads: int, cache: Path, blocks: int = 1) -> np.ndarray:
    """Which thread visits each element of the walk's space (by its own indices), -1 none; twice is an error."""
    nest = Nest()
    place = (
        " + ".join(f"({index.text}) * {prod(walk.space[axis + 1 :])}" for axis, index in enumerate(walk.index)) or "0"
    )
    inside = " && ".join(f"({index.text}) < {extent}" for index, extent in zip(walk.index, walk.space, strict=True))
    nest.element.append(f"if ({inside or 'true'}) {{ seen[{place}] += 1; who[{place}] = worker; }}")
    worker = "thread_index() + (int)blockIdx.x * " + str(threads)
    body = "\n".join(
        [
            'extern "C" __global__ void walk(int* seen, int* who) {',
            f"const int thread = thread_index(), warp = warp_index(), lane = lane_index(), worker = {worker};",
            "(void)thread; (void)warp; (void)lane;",
            *walk.text(nest),
            "}",
        ]
    )
    count = max(prod(walk.space), 1)
    arguments = [np.zeros(count, np.int32), np.full(count, -1, np.int32)]
    launch = LaunchShape(kernel="walk", grid=(blocks, 1, 1), threads=threads)
    options = HostOptions(cache_folder=cache, keep=frozenset({0, 1}))
    seen, who = run_on_host(kernel_source(body), launch, arguments, options).outputs
    np.testing.assert_array_equal(seen, np.ones(count))
    return who.reshape(walk.space)


@pytest.mark.parametrize(
    ("space", "inner", "width"),
    [
        ((), None, 1),
        ((5,), 0, 1),
        ((3, 40), 1, 4),
        ((40, 6), 0, 2),
        ((2, 5, 24), 2, 8),
        ((2, 9, 4), 1, 1),
        ((300, 1), 1, 1),
    ],
)
@pytest.mark.parametrize("has_slots", [False, True])
def test_rows_walks_visit_each_element_once(
    space: tuple[int, ...], inner: int | None, width: int, has_slots: bool, host_cache: Path
) -> None:
    owners(RowsWalk(space, inner, threads=64, width=width, has_slots=has_slots), 64, host_cache)


def test_blocks_that_share_a_stage_visit_each_element_once(host_cache: Path) -> None:
    owners(RowsWalk((37, 24), 1, threads=64, width=4, cluster=3), 64, host_cache, blocks=3)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"row_tiles": 2, "column_tiles": 3, "warp_columns": 2},
        {"warp_rows": 2, "matrices": 2, "column_tiles": 1},
    ],
)
def test_fragment_walks_visit_each_element_once(given: dict[str, int], host_cache: Path) -> None:
    made = layout(**given)
    space = (made.matrices, made.rows - 3, made.columns - 1)
    who = owners(FragmentWalk(made, space), 128, host_cache)
    assert np.all((who // 32) < made.used_warps)
    np.testing.assert_array_equal(who[:, :, 0] % 32 // 4, np.broadcast_to(np.arange(space[1]) % 8, who.shape[:2]))


def test_equal_element_keys_mean_equal_owners(host_cache: Path) -> None:
    one = RowsWalk((12, 64), 1, threads=64, width=4)
    other = RowsWalk((12, 64), 1, threads=64, width=4, has_slots=True)
    assert one.element_key == other.element_key
    np.testing.assert_array_equal(owners(one, 64, host_cache), owners(other, 64, host_cache))
    assert RowsWalk((12, 64), 1, threads=64, width=2).element_key != one.element_key
    assert RowsWalk((12, 64), 0, threads=64, width=4).row_key != one.row_key


def test_a_row_belongs_to_neighbouring_lanes(host_cache: Path) -> None:
    walk = RowsWalk((16, 32), 1, threads=64, width=4)
    who = owners(walk, 64, host_cache)
    assert walk.lanes == 8
    assert np.all(who // walk.lanes == who[:, :1] // walk.lanes)


def test_operand_walks_cover_a_fragment_per_quad() -> None:
    walk = OperandWalk(layout(), (16, 16))
    places = {
        (lane // 4 + quad % 2 * 8, lane % 4 * 2 + quad // 2 * 8 + e)
        for lane in range(32)
        for quad in range(4)
        for e in (0, 1)
    }
    assert len(places) == 256
    text = "\n".join(walk.operand_lines(Nest(element=["use(row, col + e);"])))
    assert "lane / 4 + quad % 2 * 8" in text
    assert "depth + lane % 4 * 2 + quad / 2 * 8" in text


def test_widths_keep_all_threads_busy() -> None:
    assert choose_width((64, 64), 1, 128, 8) == 8
    assert choose_width((4, 64), 1, 128, 8) == 2
    assert choose_width((64, 63), 1, 128, 8) == 1
    assert choose_width((), None, 128, 8) == 1


def test_group_sizes_divide_the_block() -> None:
    assert group_sizes(192) == [1, 2, 4, 8, 16, 32, 64, 96, 192]


def test_texts() -> None:
    assert loop("int i = 0; i < 2; i++", ["f(i);"], unroll=4) == [
        "#pragma unroll 4",
        "for (int i = 0; i < 2; i++) {",
        "  f(i);",
        "}",
    ]
    assert indented(["#pragma unroll", "x;"]) == ["#pragma unroll", "  x;"]
    assert tile_base("warp % 2", 3, 16, "mt") == "(warp % 2) * 48 + mt * 16"
    assert tile_base("0", 1, 16, "mt") == "0"
    made = layout(warp_rows=2, warp_columns=2)
    assert (made.row_text, made.column_text, made.depth_text) == ("warp % 2", "warp / 2", "0")
    assert layout(warp_columns=2, warp_depth=2).depth_text == "warp / 2"
