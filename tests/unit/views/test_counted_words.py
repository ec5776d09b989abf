"""One of a thing takes no s, wherever a count stands in words."""

from __future__ import annotations

import pytest

import workbench as wb
from workbench.cost.estimate import estimate
from workbench.cost.hardware import hardware
from workbench.search.events import Completed, Finished, Progress, Said, ValueKept
from workbench.search.space import Space
from workbench.search.summary import Found, Structure
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.views.search_event import view_event
from workbench.views.walk_view import bound_svg


def one_block() -> KernelGraph:
    kernel = KernelBuilder()
    x = kernel.input("X", (8, 8))
    block = kernel.block(x)
    block.save(block.apply("exp", block.load(x)))
    kernel.output(*block.finish())
    return kernel.build()


GRAPH = one_block()


@pytest.mark.parametrize(
    ("text", "one"),
    [
        (ValueKept("loops h", 0, "a tile", 1, Said("X")).describe(), "at least 1 operator)"),
        (Progress(0, 3, 1, 1).describe(), "1 state, 1 structure"),
        (Finished(1, 1, 1, 1, {}, 0, 0.0).describe(), "1 state, 1 graph, 1 structure, 1 verified"),
        (Found(Space(), [Structure(GRAPH, 1, 1)]).describe(), "structure 0: 1 operator, 1 kernel\n"),
        (view_event(0, Completed("loops h", 0, GRAPH, 1, 1)).text, "structure 0: 1 operator in 1 kernel"),
        (estimate(GRAPH, hardware=hardware("h200")).describe(), "1 block in 1 wave, "),
        (repr(wb.trace(lambda X: X + X, X=(2, 2))), ", 1 kernel>"),
        (bound_svg({"schwartz-zippel": 1e-3}, 1e-9, 1), "1 test was run"),
    ],
)  # fmt: skip
def test_one_takes_no_s(text: str, one: str) -> None:
    assert one in text
