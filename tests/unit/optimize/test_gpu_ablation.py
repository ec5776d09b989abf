"""The benchmark that times passes and stable forms on a GPU, up to the launch: kernels run on the host, times are given."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu_ablation
from benchmarks.gpu_ablation import Asked, Floats, Prepared, Variant, judged, load, right_outputs, run, save, variants
from workbench.codegen.cuda.host_program import run_program_on_host
from workbench.codegen.cuda.host_run import HostOptions
from workbench.codegen.cuda.storage import from_storage
from workbench.optimize.ablation import ABLATED

SIZES = {"rows": 16, "head_dim": 32, "context": 128}
ASKED = Asked(
    ablated=(("rms_norm_linear", {"batch": 16, "hidden": 64, "out": 48}),),
    softmax=(("gqa", SIZES),),
    grids=(("gqa_decode", {"context": 1024, "head_dim": 16}),),
)
MACHINE = {"gpu": "none", "driver": "0", "date": "2026-01-01T00:00:00+00:00", "versions": {}, "clocks": {}}


class HostGpu:
    """Runs kernels on the host; every variant takes the time that it is given."""

    def __init__(self, cache: Path, times: Mapping[str, float]) -> None:
        self.options, self.times = HostOptions(cache_folder=cache), times

    def outputs(self, variant: Variant, inputs: Sequence[Floats]) -> list[Floats]:
        if variant.name.startswith("broken"):
            raise RuntimeError("an illegal address")
        found = run_program_on_host(variant.program, inputs, self.options)
        return [from_storage(a, t.dtype) for a, t in zip(found, variant.reference.outputs, strict=True)]

    def times_us(self, chosen: Sequence[Variant], rounds: int) -> dict[str, tuple[float, float]]:
        return {one.name: (self.times[one.name], self.times[one.name] / rounds) for one in chosen}

    def provenance(self) -> dict[str, Any]:
        return dict(MACHINE)


def prepared(only: str) -> Prepared:
    found = tuple(variants(ASKED, only))
    return Prepared(found, {found[0].table: right_outputs(found[0])})


@pytest.fixture(scope="module")
def softmax() -> Prepared:
    """Both forms of attention in one kernel."""
    found = tuple(one for one in variants(ASKED, "softmax") if len(one.program.kernels) == 1)
    return Prepared(found, {found[0].table: right_outputs(found[0])})


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("host")


def test_a_stable_form_is_right_near_100_where_the_unsafe_one_overflows(
    softmax: Prepared, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = tmp_path / "ablation.jsonl"
    unsafe, stable = (one.name for one in softmax.variants)
    rows, unfinished = run(softmax, HostGpu(cache, {unsafe: 10.0, stable: 11.4}), records, rounds=2, budget_s=60.0)
    assert (unsafe[:6], stable[:6], unfinished) == ("unsafe", "stable", [])
    assert all(row["correct"] for row in rows)
    assert [row["near_100"] == "right" for row in rows] == [False, True]
    assert [row["loss"] for row in rows] == pytest.approx([0, 0.14])
    assert judged(rows)[0].startswith("met: softmax of gqa")
    said = capsys.readouterr().out
    assert f"{stable}              11.40 us cold     5.70 warm  +14.0%" in said
    written = [json.loads(line) for line in records.read_text(encoding="utf-8").splitlines()]
    assert written == rows
    assert all(row["schema"] == gpu_ablation.SCHEMA and row["gpu"] == "none" and row["modelled_us"] > 0 for row in rows)


def test_a_variant_that_fails_leaves_the_others_their_turn(softmax: Prepared, cache: Path, tmp_path: Path) -> None:
    first, second = softmax.variants
    broken = replace(first, name="broken", base="broken")
    some = Prepared((broken, replace(second, base="broken")), softmax.right)
    rows, unfinished = run(some, HostGpu(cache, {second.name: 11.0}), tmp_path / "a.jsonl", rounds=1, budget_s=60.0)
    assert not unfinished
    assert rows[0]["problem"] == "RuntimeError: an illegal address"
    assert (rows[0]["correct"], rows[0]["cold_us"], rows[0]["loss"]) == (False, None, None)
    assert (rows[1]["correct"], rows[1]["cold_us"], rows[1]["loss"]) == (True, 11.0, None)
    assert judged(rows)[0].startswith("NOT met")
    late = [{**rows[1], "loss": 0.155}]
    assert judged(late)[0].startswith("NOT met")


def test_out_of_time_no_table_is_begun(softmax: Prepared, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, unfinished = run(softmax, HostGpu(tmp_path, {}), tmp_path / "a.jsonl", rounds=1, budget_s=-1.0)
    assert (rows, unfinished) == ([], list(softmax.tables()))
    assert "no time left" in capsys.readouterr().out
    assert not (tmp_path / "a.jsonl").exists()


def test_what_was_prepared_comes_back_from_its_folder(tmp_path: Path) -> None:
    made = prepared("grids")
    save(made, tmp_path)
    back = load(tmp_path)
    assert [one.name for one in back.variants] == ["chosen", "grid (2, 1, 8)"]
    assert [one.graph for one in back.variants] == [one.graph for one in made.variants]
    assert back.cubins == tmp_path / "cubins"
    assert back.variants[1].told["grids"][0] == [2, 1, 8]
    assert not load(tmp_path, "passes").variants


def test_every_pass_has_a_row_that_the_model_foretells() -> None:
    rows = list(variants(ASKED, "passes"))
    assert [row.name for row in rows] == ["all passes", *(f"without {name}" for name in ABLATED)]
    told = {row.name: row.told["modelled_us"] for row in rows}
    assert told["without layouts"] > told["all passes"] == told["without memory"]
