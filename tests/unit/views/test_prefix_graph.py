"""The picture of a prefix: edges go around nodes, titles are whole."""

from __future__ import annotations

import re

import numpy as np

import workbench as wb
from workbench.views.prefix_graph import Box, PrefixDesk, PrefixGraph, PrefixNode, edge_points, prefix_svg


def test_edges_keep_beside_every_node_between_their_ends() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        lines: list[list[Box]] = []
        for number in range(int(rng.integers(2, 7))):
            left, top = float(rng.integers(10, 200)), 60.0 * number
            lines.append([(left + 160 * n, top, left + 160 * n + 142, top + 34) for n in range(rng.integers(1, 5))])
        source, target = lines[0][0], lines[-1][-1]
        points = edge_points(source, target, target[0] + 71, lines)
        assert points[0] == (source[0] + 71, source[3])
        assert points[-1] == (target[0] + 71, target[1])
        assert [y for _, y in points] == sorted(y for _, y in points)
        for row in lines[1:-1]:
            inside = [x for x, y in points if row[0][1] <= y <= row[0][3]]
            assert len(set(inside)) == 1  # straight past the row
            assert all(not box[0] < inside[0] < box[2] for box in row)


def test_titles_are_whole_and_the_new_node_is_marked() -> None:
    title = "kernel matmul over a very long name of axes"
    nodes = (
        PrefixNode(0, "X", "4×24", (), 0, 0, False),
        PrefixNode(1, "square", "t1", (0,), 2, 0, False),
        PrefixNode(2, title, "t2", (1, 0), 5, 0, True),
    )
    svg = prefix_svg(PrefixGraph(nodes, {2: "block graph", 5: "predefined kernels"}), dropped_by="demand")
    lines = re.findall(r'font-weight="600" text-anchor="middle">([^<]*)<', svg)
    assert " ".join(lines[2:]) == title
    assert "…" not in svg
    assert svg.count('class="wb-cut"') == 1
    assert "t2, dropped" in svg
    assert f"{title}; dropped by demand" in svg
    assert svg.count('class="wb-stroke"') == 3  # one edge an operand


def test_a_prefix_is_rebuilt_from_its_name() -> None:
    program = wb.programs.get("rms_norm_linear", batch=4, hidden=24, out=10)
    desk = PrefixDesk(program, wb.Space(max_block_ops=4), None)
    graph = desk.graph("0/1.0.-.4/1.1.0.3")
    assert [(node.title, node.operands, node.is_new) for node in graph.nodes] == [
        ("X", (), False), ("G", (), False), ("square", (0,), False), ("mul", (1, 0), True),
    ]  # fmt: skip
    assert desk.axes == "a = 4, b = 24, c = 10"
