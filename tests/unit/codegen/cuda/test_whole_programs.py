"""Whole programs on the host, from the text that a GPU gets: unfused programs, random block graphs, Mirage's graphs reduced."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.gpu.cases import GpuCase, mirage_cases, unfused_cases
from tests.gpu.random_graphs import KINDS, features, random_graph, recipes, tolerances_at
from tests.unit.codegen.cuda.host_check import buffer_problems, problems_on_host
from tests.unit.device.hand_made import product_and_input, thrice
from workbench.codegen.cuda.emitted import KernelLaunch
from workbench.codegen.cuda.host_program import run_program_on_host
from workbench.codegen.cuda.kernel_level import emit_program
from workbench.device.check_worker import CheckJob
from workbench.errors import EmitError, HostRunError, NotApplicableError, ShapeError
from workbench.ugraph.reinstantiate import reduction

MANY = 90
"""Random graphs of the thorough run, with both kinds of inputs; test_random_graphs.py has those of the ordinary one."""


@pytest.mark.parametrize("case", unfused_cases(), ids=lambda case: case.label)
def test_unfused_programs(case: GpuCase) -> None:
    assert problems_on_host(case.job) == []


def test_the_quotas_of_random_graphs() -> None:
    found = [features(random_graph(recipe).graph) for recipe in recipes(72)]
    assert sum(one.products >= 1 for one in found) >= 36
    assert sum(one.products >= 2 for one in found) >= 18
    assert sum(one.is_ragged for one in found) >= 18
    assert all(sum(kind in one.kinds for one in found) >= 8 for kind in KINDS)


def test_random_graphs_are_reproducible() -> None:
    (recipe,) = recipes(1)
    assert random_graph(recipe).graph == random_graph(recipe).graph
    assert random_graph(recipe, 1).graph != random_graph(recipe).graph


@pytest.mark.slow
@pytest.mark.parametrize("number", range(0, MANY, 5))
def test_a_random_graph_is_right_or_refused(number: int) -> None:
    made = random_graph(recipes(MANY)[number])
    try:
        emit_program(made.graph)
    except EmitError as error:
        why = error
    else:
        assert problems_on_host(CheckJob(graph=made.graph, tolerances=tolerances_at(made.noise))) == []
        return
    assert why.rule
    assert why.cure


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("is_ragged", [False, True])
def test_mirages_graphs_reduced(shared_data: Path, *, is_ragged: bool) -> None:
    """One graph of each structure that Mirage saved, at small extents and counts."""
    folder = shared_data / "mirage_mugraphs"
    if not folder.is_dir():
        pytest.skip(f"no folder mirage_mugraphs in {shared_data}")
    graphs = {case.job.graph.structure_hash: case.job.graph for case in mirage_cases(folder)}
    ran = 0
    for number, graph in enumerate(graphs.values()):
        try:
            small = reduction(graph, np.random.default_rng(number), ragged=is_ragged)
        except NotApplicableError:
            continue  # no axis may end early
        assert problems_on_host(CheckJob(graph=small, tolerances=tolerances_at(2e-3))) == [], small.describe()
        ran += 1
    assert ran >= 10


# ------------------------------------------------------------------------------------------- running programs at all
def test_hand_made_programs() -> None:
    for program, graph in (thrice(), product_and_input()):
        assert problems_on_host(CheckJob(graph=graph, program=program)) == []


def test_a_wrong_program_is_told() -> None:
    program, graph = thrice()
    right = program.steps[1]
    assert isinstance(right, KernelLaunch)
    wrong = replace(program, steps=(program.steps[0], replace(right, arguments=("T", "T", "Y"))))
    assert any("is off by" in problem for problem in problems_on_host(CheckJob(graph=graph, program=wrong)))
    short = replace(program, steps=program.steps[1:])
    assert "step 0 reads T before it is written" in buffer_problems(short)
    assert buffer_problems(replace(program, workspace_bytes=100)) == ["T lies at 0 of 100 bytes"]


def test_a_stray_access_is_found() -> None:
    program, graph = thrice(body="""
extern "C" __global__ void __launch_bounds__(128) added(const f16* a, const f16* b, f16* y) {
  const int i = blockIdx.x * 128 + thread_index();
  if (i <= %d) y[i] = a[i];
}
""")  # fmt: skip
    with pytest.raises(HostRunError, match="out of bounds"):
        run_program_on_host(program, [np.zeros(tensor.shape) for tensor in graph.inputs])


def test_inputs_that_do_not_fit() -> None:
    program, _ = thrice()
    with pytest.raises(ShapeError, match="takes 1 inputs, got 2"):
        run_program_on_host(program, [np.zeros((3, 70))] * 2)
    with pytest.raises(ShapeError, match=r"input X has shape \(3, 71\)"):
        run_program_on_host(program, [np.zeros((3, 71))])


def test_emitted_programs_place_their_buffers() -> None:
    for case in unfused_cases():
        assert buffer_problems(emit_program(case.job.graph, library=case.job.library)) == []
