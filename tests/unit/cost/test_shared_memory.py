"""The least shared memory is at most what the emitter's plan takes, and equals it where only a ring of tiles is needed."""

from __future__ import annotations

import random

import pytest

from workbench import programs
from workbench.codegen.cuda.kernel_level import emit_program
from workbench.codegen.cuda.schedule import Schedule
from workbench.cost.candidates import ScheduleLimits
from workbench.cost.hardware import hardware
from workbench.cost.schedules import ScheduleRow, ScheduleSpace
from workbench.cost.shared_memory import shared_bytes_at_least
from workbench.errors import EmitError, NotApplicableError, UsageError
from workbench.ugraph.builder import KernelBuilder

FEW = ScheduleLimits(
    tiles=(16, 32, 64, 128), depths=(32, 64, 128), splits=(4, 8, 16), stages=(2, 3, 4), threads=(128, 256)
)


def test_a_ring_by_hand() -> None:
    kernel = KernelBuilder()
    x, w = kernel.input("X", (16, 256)), kernel.input("W", (256, 64))
    block = kernel.block(x, w, loop=4)
    block.save(block.accumulate(block.load(x, fmap=1) @ block.load(w, fmap=0)))
    kernel.output(*block.finish())
    made = kernel.build().graph_defined[0].block
    tile = 2 * (16 * 64 + 64 * 64)
    assert [shared_bytes_at_least(made, stages=stages) for stages in (1, 2, 3, 9)] == [
        tile,
        2 * tile,
        3 * tile,
        4 * tile,
    ]
    with pytest.raises(UsageError):
        shared_bytes_at_least(made, stages=0)


def test_what_threads_read_themselves_takes_none() -> None:
    block = programs.known_good("softmax", batch=4, hidden=1024)[0].graph_defined[0].block
    assert shared_bytes_at_least(block, stages=4) == 0


@pytest.mark.parametrize("name", [name for name in programs.names() if name not in ("moe_expert", "mha")])
def test_no_plan_takes_less(name: str) -> None:
    chance, compared = random.Random(4), 0
    for graph in programs.known_good(name)[:2]:
        space = ScheduleSpace(graph, hardware=hardware("h200"), limits=FEW)
        for _ in range(4):
            rows = tuple(chance.randrange(table.size) for table in space.kernels)
            parameters = tuple(table.parameters(row) for table, row in zip(space.kernels, rows, strict=True))
            try:
                made = space.realize(ScheduleRow(0.0, rows, parameters))
                schedules = {
                    node.results[0].name: Schedule(threads=c.threads, stages=c.stages if c.stages > 1 else None)
                    for node, c in zip(made.graph.graph_defined, made.choices, strict=True)
                }
                program = emit_program(made.graph, schedules=schedules)
            except (EmitError, NotApplicableError):
                continue
            for node, choice, kernel in zip(made.graph.graph_defined, made.choices, program.kernels, strict=False):
                compared += 1
                assert shared_bytes_at_least(node.block, stages=choice.stages) <= kernel.launch.shared_bytes
    assert compared >= 2


def test_it_equals_the_plan_of_a_plain_product() -> None:
    graph = programs.known_good("gated_mlp")[0]
    kernel = emit_program(graph, schedules={"O": Schedule(threads=128, stages=3)}).kernels[0]
    assert shared_bytes_at_least(graph.graph_defined[0].block, stages=3) == kernel.launch.shared_bytes
