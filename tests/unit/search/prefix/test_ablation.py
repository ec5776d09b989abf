"""The ablation: cells that ended agree, a stopped cell is a lower bound, a file is continued."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.search.prefix.programs import distributed, studied
from workbench.errors import FormatError, UsageError
from workbench.search.prefix.ablation import COLUMNS, ablate, read


def test_columns_agree_where_they_end_and_each_prunes_more_than_the_next() -> None:
    table = ablate(studied("gated_mlp"), operators=(3, 4), seconds=10.0, columns=("all", "axes", "sizes"))
    for operators in (3, 4):
        cells = [table.cell(operators, column) for column in ("all", "axes", "sizes")]
        assert all(cell is not None and cell.ended for cell in cells)
        counts = [cell.prefixes for cell in cells if cell is not None]
        assert counts == sorted(counts)
        assert counts[2] > 5 * counts[1]
        assert len({cell.verified for cell in cells if cell is not None}) == 1


def test_stopped_cell_is_a_bound_and_larger_ones_are_not_begun() -> None:
    table = ablate(studied("gated_mlp"), operators=(6, 7), seconds=0.2, columns=("none",))
    stopped, larger = table.cell(6, "none"), table.cell(7, "none")
    assert stopped is not None
    assert larger is not None
    assert not stopped.ended
    assert stopped.prefixes > 0
    assert stopped.verified is None
    assert not larger.prefixes
    text = table.describe()
    assert f"> {stopped.prefixes:,}" in text
    assert "not begun" in text


def test_file_is_continued_row_by_row(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    told: list[str] = []
    first = ablate(distributed(), operators=(1, 2), seconds=10.0, columns=("all", "axes"), file=file)
    again = ablate(
        distributed(), operators=(1, 2, 3), seconds=10.0, columns=("all", "axes"), file=file, tell=told.append
    )
    assert again.cells[:4] == first.cells
    assert told == ["3 operators, all pruners", "3 operators, by axes"]
    assert read(file) == again
    with pytest.raises(UsageError, match="give another file"):
        ablate(distributed(), operators=(1,), seconds=11.0, file=file)
    file.write_text("{}")
    with pytest.raises(FormatError, match="expected an ablation"):
        ablate(distributed(), operators=(1,), seconds=10.0, file=file)


def test_mistakes_are_one_line() -> None:
    assert COLUMNS == ("all", "sizes", "axes", "none")
    with pytest.raises(UsageError, match="column 'most'"):
        ablate(distributed(), columns=("most",))
    with pytest.raises(UsageError, match="more than 0"):
        ablate(distributed(), seconds=0.0)
