"""From a sketch to a µGraph with the program's inputs and outputs."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.unit.search.searched import PROGRAMS, graph_of, sketches_of
from workbench.core.dtypes import DType
from workbench.errors import NotApplicableError
from workbench.search.built_blocks import BuiltBlocks
from workbench.search.instantiate import Counts, Instantiation
from workbench.search.plans import Plan, plans_of
from workbench.search.problem import problem_of
from workbench.search.schedules import first_instance
from workbench.search.space import Space
from workbench.ugraph.nodes import Accumulator, GraphDefinedNode, OpNode
from workbench.ugraph.value import exp, transpose


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_built_computes_the_program_in_float64(name: str) -> None:
    program = PROGRAMS[name]
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-1, 1, tensor.shape) for tensor in program.inputs]
    expected = wb.evaluate(program, arrays)
    built = 0
    for plan in plans_of(problem_of(program), Space()):
        for sketch in sketches_of(program, plan, limit=5):
            try:
                graph = first_instance(sketch)
            except NotApplicableError:
                continue
            built += 1
            for left, right in zip(wb.evaluate(graph, arrays), expected, strict=True):
                assert np.allclose(left, right)
    assert built


def test_counts_are_those_asked_for_and_may_leave_a_remainder() -> None:
    program = graph_of(lambda x, w: x @ w, X=(8, 30), W=(30, 16))
    problem = problem_of(program)
    (axis,), rows = problem.reduced, problem.goals[0].dims[0][0]
    (sketch,) = sketches_of(program, Plan((axis,)))
    graph = Instantiation(sketch, problem.extents, [Counts(((rows, 3),), 4)]).build()
    block = graph.graph_defined[0].block
    assert block.grid_dims == (3, 1, 1)
    assert block.forloop_range == 4
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=tensor.shape) for tensor in program.inputs]
    assert np.allclose(wb.evaluate(graph, arrays)[0], arrays[0] @ arrays[1])


def test_the_last_axis_is_accumulated_by_one_node() -> None:
    program = graph_of(lambda x: wb.mean(exp(x)), X=(8, 32))
    (axis,) = problem_of(program).reduced
    kinds = set()
    for sketch in sketches_of(program, Plan((axis,))):
        nodes = first_instance(sketch).graph_defined[0].block.nodes
        kinds |= {node.kind.value for node in nodes if isinstance(node, Accumulator)}
    assert "mean" in kinds


def test_outputs_keep_their_names_unless_a_builder_gives_them() -> None:
    program = wb.programs.get("rms_norm_linear", batch=4, hidden=16, out=8)
    (axis,) = problem_of(program).reduced
    sketch = sketches_of(program, Plan((axis,)))[0]
    assert first_instance(sketch).outputs[0].name == program.outputs[0].name


def test_an_input_that_is_an_output_passes_through() -> None:
    program = graph_of(lambda x, w: (x, transpose(w)), X=(8, 32), W=(32, 16))
    assert not [plan for plan in plans_of(problem_of(program), Space()) if sketches_of(program, plan)]
    passing = graph_of(lambda x, w: (x, x @ w), X=(8, 32), W=(32, 16))
    (sketch,) = sketches_of(passing, Plan((None,)))
    graph = first_instance(sketch)
    assert graph.output_names[0] == "X"
    assert sum(isinstance(node, GraphDefinedNode) for node in graph.nodes) == 1


def test_a_product_that_ends_the_program_has_the_program_s_type() -> None:
    program = wb.trace(lambda X, W, V: exp(X @ W) @ V, X=(4, 32), W=(32, 16), V=(16, 8), dtype="float16")
    graphs = []
    for plan in plans_of(problem_of(program), Space()):
        graphs += [first_instance(sketch) for sketch in sketches_of(program, plan, kernels=1, limit=5)]
    ends = [graph for graph in graphs if isinstance(graph.nodes[-1], OpNode)]
    assert any(
        tensor.dtype is DType.FLOAT32 for graph in ends for node in graph.graph_defined for tensor in node.results
    )
    assert all(graph.outputs[0].dtype is DType.FLOAT16 for graph in graphs)


def test_sketches_share_block_graphs_that_are_the_same_and_no_others() -> None:
    program = PROGRAMS["norm"]
    (axis,) = problem_of(program).reduced
    plan = Plan((None, axis))
    blocks = BuiltBlocks()
    graphs = [first_instance(sketch, blocks) for sketch in sketches_of(program, plan, limit=9)]
    alone = [first_instance(sketch) for sketch in sketches_of(program, plan, limit=9)]
    assert [graph.hash for graph in graphs] == [graph.hash for graph in alone]
    used = [node.block for graph in graphs for node in graph.graph_defined]
    assert len({id(block) for block in used}) < len(used)
    assert len({id(block) for block in used}) == len(set(used))
