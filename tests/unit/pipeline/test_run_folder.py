"""What a folder is asked to forget, and what it never touches: files that no run wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import workbench as wb
from workbench.errors import FormatError, UsageError
from workbench.pipeline.progress import Stage
from workbench.pipeline.superoptimize import superoptimize

FIRST = wb.trace(lambda X, Y: wb.exp(X) / Y, X=(8, 16), Y=(8, 16))
OTHER = wb.trace(lambda X, Y: wb.exp(Y) / X, X=(8, 16), Y=(8, 16))


@pytest.mark.parametrize("text", ['{"accuracy": 0.9}', "[]", "no JSON"])
@pytest.mark.parametrize("fresh", [False, True])
def test_a_result_of_something_else_is_told_and_nothing_in_its_folder_is_touched(
    tmp_path: Path, text: str, fresh: bool
) -> None:
    kept = {"result.json": text, "search.jsonl": "mine\n", "search-notes.jsonl": "mine too\n"}
    for name, content in kept.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(FormatError, match="choose another folder"):
        superoptimize(FIRST, measure=False, out=tmp_path, fresh=fresh)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == kept


@pytest.mark.parametrize(
    ("text", "told"),
    [("xx", "is no JSON"), ('{"0": "x"}', "no table of chosen spaces"), ("[]", "no table of chosen spaces")],
)
def test_damaged_notes_of_a_search_are_told(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "spaces.json").write_text(text)
    with pytest.raises(FormatError, match=told):
        superoptimize(FIRST, measure=False, out=tmp_path)


def test_a_damaged_answer_is_told_and_a_fresh_run_replaces_it(tmp_path: Path) -> None:
    superoptimize(FIRST, measure=False, out=tmp_path)
    file = tmp_path / "result.json"
    damages: tuple[dict[str, object], ...] = (
        {"candidates": None}, {"candidates": [{"graph": {}}]}, {"space": {"depth": 1}}, {"refused": [{}]},
    )  # fmt: skip
    for damage in damages:
        file.write_text(json.dumps({**json.loads(file.read_text()), **damage}))
        with pytest.raises(FormatError, match=r"result\.json: is damaged"):
            superoptimize(FIRST, measure=False, out=tmp_path)
    assert superoptimize(FIRST, measure=False, out=tmp_path, fresh=True).candidates


def test_a_file_in_place_of_the_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(UsageError, match="is no folder"):
        superoptimize(FIRST, measure=False, out=tmp_path / "run")


def test_a_fresh_run_removes_records_of_searches_only(tmp_path: Path) -> None:
    others = ["search-notes.jsonl", "search_of_gqa.jsonl"]
    for name in [*others, "search-1.jsonl"]:
        (tmp_path / name).write_text("{}\n")
    superoptimize(FIRST, measure=False, out=tmp_path, fresh=True)
    assert all((tmp_path / name).read_text() == "{}\n" for name in others)
    assert not (tmp_path / "search-1.jsonl").exists()


def test_a_run_that_replaces_another_answer_continues_when_it_is_stopped(tmp_path: Path) -> None:
    superoptimize(FIRST, measure=False, out=tmp_path)

    def stop(at: Stage) -> None:
        if at.name == "schedule":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        superoptimize(OTHER, measure=False, out=tmp_path, progress=stop)
    record = tmp_path / "search.jsonl"
    before = record.stat().st_ino, record.read_bytes()
    whole = superoptimize(OTHER, measure=False, out=tmp_path)
    assert (record.stat().st_ino, record.read_bytes()) == before  # searched once
    assert not whole.cached
    assert json.loads((tmp_path / "result.json").read_text())["program_hash"] == OTHER.hash
