"""`workbench check`: equal graphs, a graph that differs, sizes that no memory holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.commands.calling import SMALL, answer, ask, complaint
from workbench.commands import check


def test_check_a_program(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    values = answer(capsys, "check", *SMALL, "-o", tmp_path / "pictures")
    assert values["program"] == "rms_norm_linear"
    assert values["parameters"] == {"batch": 3, "hidden": 10, "out": 7}
    assert values["equal"] is True
    assert len(values["known_good"]) == 2
    for entry in values["known_good"]:
        assert entry["relative_error"] < 1e-12
        assert entry["equal"] is True
        assert Path(entry["svg"]).exists()
    assert Path(values["svg"]).read_text(encoding="utf-8").count("<svg") == 1
    code, out, _ = ask(capsys, "check", *SMALL)
    assert code == 0
    assert "known good 1: equal" in out


def test_check_says_no_when_a_graph_differs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "TOLERANCE", 1e-40)
    values = answer(capsys, "check", *SMALL, code=1)
    assert values["equal"] is False
    code, out, err = ask(capsys, "check", *SMALL)
    assert (code, err) == (1, "")
    assert "DIFFERENT" in out


def test_check_prints_no_infinity_as_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "relative_error", lambda found, expected: float("inf"))
    assert answer(capsys, "check", *SMALL, code=1)["known_good"][0]["relative_error"] is None


def test_check_depends_on_the_seed_only(capsys: pytest.CaptureFixture[str]) -> None:
    errors = [
        [entry["relative_error"] for entry in answer(capsys, "check", *SMALL, "--seed", seed)["known_good"]]
        for seed in ("1", "1", "2")
    ]
    assert errors[0] == errors[1] != errors[2]


def test_check_refuses_what_exceeds_memory(capsys: pytest.CaptureFixture[str]) -> None:
    assert "this machine has" in complaint(capsys, "check", "--set", "hidden=1000000", "out=1000000")
