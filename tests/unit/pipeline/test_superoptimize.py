"""From a program to ranked, certified candidates; caching, interruption, parts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.cost.hardware import hardware
from workbench.cost.presets import preset
from workbench.cost.schedules import ScheduleSpace
from workbench.errors import LaunchError, NothingFoundError, UnknownNameError, UsageError
from workbench.pipeline.progress import Stage
from workbench.pipeline.result import Result
from workbench.pipeline.superoptimize import Options, superoptimize
from workbench.search.space import Space
from workbench.ugraph.kernel_graph import KernelGraph

SIZES: dict[str, Any] = {"batch": 16, "hidden": 256, "out": 192}


@pytest.fixture(scope="module")
def norm_linear(tmp_path_factory: pytest.TempPathFactory) -> Result:
    program = wb.programs.get("rms_norm_linear", **SIZES)
    return superoptimize(program, measure=False, out=tmp_path_factory.mktemp("run"))


def computes_the_same(program: KernelGraph, graph: KernelGraph) -> bool:
    rng = np.random.default_rng(5)
    arrays = [rng.uniform(0.2, 1.0, tensor.shape) for tensor in program.inputs]
    pairs = zip(wb.evaluate(program, arrays), wb.evaluate(graph, arrays), strict=True)
    return all(np.allclose(ours, theirs, rtol=1e-10) for ours, theirs in pairs)


def test_every_candidate_is_certified_and_right(norm_linear: Result) -> None:
    assert len(norm_linear.candidates) >= 4
    for candidate in norm_linear.candidates:
        assert candidate.certificate.kind == "equal"
        assert computes_the_same(norm_linear.program, candidate.graph)


def test_candidates_are_ranked_and_the_best_beats_the_program_as_written(norm_linear: Result) -> None:
    costs = [candidate.cost_us for candidate in norm_linear.candidates]
    assert costs == sorted(costs)
    assert norm_linear.best.origin == "search"
    assert len(norm_linear.best.graph.graph_defined) >= 1


def test_the_breakdown_sums_to_the_cost(norm_linear: Result) -> None:
    for candidate in norm_linear.candidates:
        assert sum(candidate.cost.parts.values()) == pytest.approx(candidate.cost_us, rel=1e-12)


def test_the_lower_bound_is_at_least_the_compulsory_traffic(norm_linear: Result) -> None:
    program = norm_linear.program
    moved = sum(np.prod(tensor.shape) * tensor.dtype.nbytes for tensor in (*program.inputs, *program.outputs))
    assert norm_linear.lower_bound.total_us >= moved / (hardware("h200").bandwidth_tb_s * 1e6)
    assert norm_linear.gap >= 0


def test_a_second_call_answers_from_the_folder(norm_linear: Result) -> None:
    assert norm_linear.out is not None
    again = superoptimize(norm_linear.program, measure=False, out=norm_linear.out)
    assert again.cached
    assert again.to_json()["candidates"] == norm_linear.to_json()["candidates"]
    assert again.refused == norm_linear.refused
    assert again.best.certificate.proved == norm_linear.best.certificate.proved


def test_a_folder_never_answers_for_another_wiring_or_device(tmp_path: Path) -> None:
    first = wb.trace(lambda X, Y: wb.exp(X) / Y, X=(8, 16), Y=(8, 16))
    other = wb.trace(lambda X, Y: wb.exp(Y) / X, X=(8, 16), Y=(8, 16))
    assert not superoptimize(first, measure=False, out=tmp_path).cached
    assert not superoptimize(other, measure=False, out=tmp_path).cached
    assert not superoptimize(other, "a100-80", measure=False, out=tmp_path).cached
    assert superoptimize(other, "a100-80", measure=False, out=tmp_path).cached
    assert not superoptimize(other, "a100-80", measure=False, out=tmp_path, fresh=True).cached


def test_the_folder_holds_what_was_found(norm_linear: Result) -> None:
    assert norm_linear.out is not None
    assert wb.load(norm_linear.out / "best.ugraph.json")[0].hash == norm_linear.best.graph.hash
    values = json.loads((norm_linear.out / "result.json").read_text())
    assert values["candidates"][0]["hash"] == norm_linear.best.graph.hash
    assert len((norm_linear.out / "search.jsonl").read_text().splitlines()) > 100


def stop_at(stage: str) -> Callable[[Stage], None]:
    def progress(at: Stage) -> None:
        if at.name == stage and at.done:
            raise KeyboardInterrupt

    return progress


def test_an_interruption_keeps_what_is_there_and_the_same_call_continues(tmp_path: Path) -> None:
    program = wb.programs.get("gated_mlp", **SIZES)
    stopped = superoptimize(program, measure=False, out=tmp_path, progress=stop_at("certify"))
    assert stopped.interrupted
    assert len(stopped.candidates) == 1
    record = (tmp_path / "search.jsonl").read_bytes()
    whole = superoptimize(program, measure=False, out=tmp_path)
    assert not whole.interrupted
    assert not whole.cached
    assert (tmp_path / "search.jsonl").read_bytes() == record  # the search was finished: it is not done again
    assert whole.best.graph.hash == stopped.best.graph.hash


def test_an_interruption_before_there_is_anything_is_raised_and_continued(tmp_path: Path) -> None:
    program = wb.programs.get("gated_mlp", **SIZES)
    with pytest.raises(KeyboardInterrupt):
        superoptimize(program, measure=False, out=tmp_path, progress=stop_at("search"))
    assert superoptimize(program, measure=False, out=tmp_path).candidates


def test_a_budget_ends_a_run_that_a_second_call_finishes(tmp_path: Path) -> None:
    program = wb.programs.get("lora", batch=16, hidden=64, out=64, rank=8)
    short = superoptimize(program, measure=False, out=tmp_path, budget=1e-6)
    assert short.interrupted
    if not short.candidates:
        with pytest.raises(NothingFoundError, match="call again"):
            _ = short.best
    assert not superoptimize(program, measure=False, out=tmp_path).interrupted


def test_a_program_with_two_exponentials_on_a_path_comes_back_as_one_graph(tmp_path: Path) -> None:
    program = wb.trace(lambda X, W: wb.softmax(wb.softmax(X @ W) @ W), X=(16, 64), W=(64, 64))
    result = superoptimize(program, measure=False, out=tmp_path)
    assert result.parts == 2
    assert result.best.certificate.kind == "equal"
    assert computes_the_same(program, result.best.graph)


def test_a_program_of_many_operators_is_searched_part_by_part(tmp_path: Path) -> None:
    def layers(X: Any, A: Any, B: Any, C: Any) -> Any:
        for _ in range(3):
            X = X + (wb.silu(X @ A) * B) @ C
        return X

    program = wb.trace(layers, X=(8, 32), A=(32, 48), B=(48,), C=(48, 32))
    assert len(program.nodes) == 15
    result = superoptimize(program, measure=False, out=tmp_path, options=Options(keep=1))
    assert result.parts >= 2
    assert result.best.origin == "search, part by part"
    assert computes_the_same(program, result.best.graph)


@pytest.mark.parametrize(
    "program",
    [
        lambda X, W, U: wb.exp(X @ W),  # U is not read
        lambda X, W, U: (lambda y: (wb.exp(y), y, y, U))(X @ W),  # neither in order, nor once, nor all computed
    ],
)
def test_a_program_keeps_its_inputs_and_outputs_and_is_fused_all_the_same(
    program: Callable[..., Any], tmp_path: Path
) -> None:
    graph = wb.trace(program, X=(8, 16), W=(16, 8), U=(3, 5))
    result = superoptimize(graph, measure=False, out=tmp_path, options=Options(space=Space(max_block_ops=3)))
    assert result.best.origin == "search"
    assert not any(refusal.stage == "verify" for refusal in result.refused)
    assert [tensor.shape for tensor in result.best.graph.inputs] == [(8, 16), (16, 8), (3, 5)]
    assert computes_the_same(graph, result.best.graph)


@pytest.mark.parametrize("program", [lambda X: X, lambda X: wb.reshape(X, (128,)), lambda X: 3.0])
def test_a_program_that_computes_nothing_costs_a_copy(program: Callable[..., Any], tmp_path: Path) -> None:
    result = superoptimize(wb.trace(program, X=(8, 16)), measure=False, out=tmp_path)
    assert len({candidate.graph.hash for candidate in result.candidates}) == len(result.candidates)
    assert len(result.best.cost.kernels) == 1
    assert result.gap > 0


def test_an_operator_without_meaning_in_a_field_is_kept_as_it_is(tmp_path: Path) -> None:
    program = wb.trace(lambda X, W: wb.gelu(X @ W) @ W, X=(16, 64), W=(64, 64))
    result = superoptimize(program, measure=False, out=tmp_path)
    assert result.best.certificate.kind == "equal"
    assert computes_the_same(program, result.best.graph)


def test_what_was_refused_has_reasons_and_the_explanation_names_them(norm_linear: Result) -> None:
    text = norm_linear.explain()
    assert "Why this one" in text
    for refusal in norm_linear.refused:
        assert refusal.reason
        assert refusal.describe() in text


def test_the_table_has_a_row_per_candidate(norm_linear: Result) -> None:
    pandas = pytest.importorskip("pandas")
    table = norm_linear.to_pandas()
    assert isinstance(table, pandas.DataFrame)
    assert list(table["cost_us"]) == [candidate.cost_us for candidate in norm_linear.candidates]


def test_a_candidate_gives_its_source_and_exports(norm_linear: Result, tmp_path: Path) -> None:
    assert "__global__" in norm_linear.best.source("cuda")
    with pytest.raises(UsageError, match="cuda"):
        norm_linear.best.source("triton")
    files = norm_linear.best.export(tmp_path, checked=False)
    assert (tmp_path / "kernel.cu") in files


def test_bad_requests_are_refused_in_one_line(tmp_path: Path) -> None:
    program = wb.programs.get("softmax")
    with pytest.raises(UnknownNameError, match="h200"):
        superoptimize(program, "h300", out=tmp_path)
    with pytest.raises(UsageError, match="budget"):
        superoptimize(program, budget=0, out=tmp_path)
    with pytest.raises(UsageError, match="budget '5'"):
        superoptimize(program, budget="5", out=tmp_path)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"take 2\.2 TB, the memory of h200 holds 141 GB"):
        superoptimize(wb.trace(lambda X: wb.exp(X) / 2, X=(2**19, 2**20)), out=tmp_path)
    with pytest.raises(UsageError, match="keep"):
        Options(keep=0)
    with pytest.raises(UsageError, match="block graphs"):
        superoptimize(wb.programs.known_good("gqa")[0], measure=False, out=tmp_path)
    with pytest.raises(LaunchError, match="measure"):
        superoptimize(program, "a100-80", measure=True, out=tmp_path)


def test_a_space_in_which_nothing_is_found_still_offers_the_program_as_written(tmp_path: Path) -> None:
    program = wb.programs.get("rms_norm_linear", **SIZES)
    result = superoptimize(program, measure=False, out=tmp_path, space=Space(max_block_ops=1, max_block_graphs=0))
    assert [candidate.origin for candidate in result.candidates] == ["the program as written"]


def test_at_256_rows_blocks_share_the_rows_and_that_is_cheaper_than_the_schedule_of_16(tmp_path: Path) -> None:
    space, fitted = Space(max_block_ops=7), preset("calibrated")
    options = Options(space=space, keep=1)
    few, many = (
        superoptimize(
            wb.programs.get("rms_norm_linear", batch=rows), measure=False, out=tmp_path / f"{rows}", options=options
        ).best
        for rows in (16, 256)
    )
    few_space, many_space = (ScheduleSpace(one.graph, hardware=hardware("h200"), preset=fitted) for one in (few, many))
    (own,) = few_space.best(1)[0].parameters
    table = many_space.kernels[0]
    rows = next(axis for axis in table.tiling.free if table.tiling.extents[axis] == 256)
    assert many_space.best(1)[0].parameters[0][rows] > 1
    assert own[rows] == 1
    # the same blocks, each with all 256 rows, whatever its loop and threads
    same = np.logical_and.reduce([table.all_columns[name] == own[name] for name in table.tiling.free])
    assert same.any()
    assert many.cost_us < table.all_cost_us[same].min()  # infinite where its tiles do not fit
