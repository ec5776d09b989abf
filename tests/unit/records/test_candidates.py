"""Kept candidates: found again for the same program, device and version, and for nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from workbench.records.candidates import StoredCandidate, candidate_store, find_candidates, save_candidate, wiring
from workbench.ugraph.kernel_graph import KernelGraph

SIZES: dict[str, Any] = {"batch": 4, "hidden": 64, "out": 32, "rank": 4}


@pytest.fixture
def program() -> KernelGraph:
    return wb.programs.get("lora", **SIZES)


@pytest.fixture
def good() -> list[KernelGraph]:
    return wb.programs.known_good("lora", **SIZES)


def save(path: Path, program: KernelGraph, graph: KernelGraph, **more: Any) -> None:
    where = {"device": more.pop("device", "h200"), "version": more.pop("version", "1")}
    save_candidate(candidate_store(path), program, StoredCandidate(graph=graph, **more), **where)


def find(path: Path, program: KernelGraph, device: str = "h200", version: str = "1") -> list[StoredCandidate]:
    return find_candidates([candidate_store(path)], program, device=device, version=version)


def test_candidates_come_back_measured_first_and_once(
    tmp_path: Path, program: KernelGraph, good: list[KernelGraph]
) -> None:
    path = tmp_path / "c.jsonl"
    assert find(path, program) == []
    save(path, program, good[0], cost_us=1.0)
    save(path, program, good[1], cold_us=5.0, schedules={"O": {"threads": 128}})
    save(path, program, good[1], cold_us=4.0, schedules={"O": {"threads": 256}}, certificate={"verdict": "equal"})
    save(path, program, good[1], cold_us=3.0, schedules={"O": {"threads": 128}})
    found = find(path, program)
    assert [one.cold_us for one in found] == [3.0, 4.0, None]
    assert [one.graph.hash for one in found] == [good[1].hash, good[1].hash, good[0].hash]
    assert found[0].schedules == {"O": {"threads": 128}}
    assert found[1].certificate == {"verdict": "equal"}
    copied = wb.loads(wb.dumps(program))[0]
    assert len(find(path, copied)) == 3


def test_nothing_is_answered_for_another_question(
    tmp_path: Path, program: KernelGraph, good: list[KernelGraph]
) -> None:
    path = tmp_path / "c.jsonl"
    save(path, program, good[0], cold_us=1.0)
    other_sizes = wb.programs.get("lora", **{**SIZES, "batch": 5})
    exchanged = wb.trace(
        lambda X, W, A, B: X @ A @ B + X @ W, X=(4, 64), W=(64, 32), A=(64, 4), B=(4, 32)
    )  # the same value, another order of nodes: a miss is allowed, an answer only for an equal hash
    wrong = wb.trace(lambda X, W, A, B: X @ W - X @ A @ B, X=(4, 64), W=(64, 32), A=(64, 4), B=(4, 32))
    swapped = wb.trace(lambda W, X, A, B: X @ W + (X @ A) @ B, W=(64, 32), X=(4, 64), A=(64, 4), B=(4, 32))
    bfloat = wb.programs.get("lora", "standard", "bfloat16", **SIZES)
    for other in (other_sizes, wrong, swapped, bfloat):
        assert find(path, other) == []
    assert all(wiring(exchanged) != wiring(program) or one.graph.hash for one in find(path, exchanged))
    assert find(path, program, device="h100") == []
    assert find(path, program, version="2") == []


def test_a_forged_hash_does_not_answer(tmp_path: Path, program: KernelGraph, good: list[KernelGraph]) -> None:
    """Two programs of one hash cannot be made, so the record is changed by hand: the stored program itself must agree."""
    path = tmp_path / "c.jsonl"
    save(path, program, good[0], cold_us=1.0)
    other = wb.programs.get("lora", **{**SIZES, "out": 48})
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"program_hash": other.hash}) + "\n")
    assert find(path, other) == []
    path.write_text(json.dumps(record | {"graph": wb.dumps(good[1])}) + "\n")
    assert find(path, program) == []
    path.write_text(json.dumps(record | {"graph": "{"}) + "\n")
    assert find(path, program) == []
    path.write_text(json.dumps(record) + "\n")
    assert len(find(path, program)) == 1


def test_exchanged_inputs_of_one_shape_make_another_wiring() -> None:
    ab = wb.trace(lambda A, B: (A @ B, A), A=(4, 4), B=(4, 4))
    ba = wb.trace(lambda A, B: (B @ A, A), A=(4, 4), B=(4, 4))
    renamed = wb.trace(lambda P, Q: (P @ Q, P), P=(4, 4), Q=(4, 4))
    assert wiring(ab) != wiring(ba)
    assert wiring(ab) == wiring(renamed)
