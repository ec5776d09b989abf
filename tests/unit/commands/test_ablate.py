"""`workbench ablate`: the table, the lecture's demonstration, a file that is continued, and mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.commands.calling import answer, ask, complaint


def test_table_of_a_program(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    arguments = ("ablate", "softmax", "--from", "2", "--to", "3", "--columns", "all,axes", "--out", file)
    values = answer(capsys, *arguments)
    assert [(cell["operators"], cell["column"]) for cell in values["cells"]] == [
        (2, "all"), (2, "axes"), (3, "all"), (3, "axes"),
    ]  # fmt: skip
    assert all(cell["ended"] and cell["prefixes"] for cell in values["cells"])
    assert values["cells"][2]["verified"] == 1
    code, out, _ = ask(capsys, *arguments)
    assert code == 0
    assert "all pruners" in out
    assert "by sizes" not in out


def test_lecture(capsys: pytest.CaptureFixture[str]) -> None:
    values = answer(capsys, "ablate", "--course", "--seconds", "0.15")
    assert values["lecture"] == {"prefixes": 5260, "pruned_share": 0.88, "ratio": 2454}
    assert {row["pruning"] for row in values["rows"]} == {"axes", "sizes", "none"}
    assert {row["dedupe"] for row in values["rows"]} == {True, False}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "name a PROGRAM"),
        (["softmax", "--course"], "has a program of its own"),
        (["softmax", "--from", "4", "--to", "3"], "--from <= --to"),
        (["softmax", "--columns", "all,most"], "column 'most'"),
        (["sofmax"], "softmax"),
    ],
)
def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    assert words in complaint(capsys, "ablate", *arguments)
