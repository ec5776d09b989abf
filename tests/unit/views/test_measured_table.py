"""Tables of measured rows: losses bold, wrong rows said, date and versions below."""

from __future__ import annotations

from tests.unit.records.measured_rows import made_rows
from workbench.views.measured_table import markdown_table, provenance_line, text_table


def test_markdown_has_a_line_per_row_and_the_mean() -> None:
    rows = made_rows()
    rows[2] |= {"ratio": 0.8}
    lines = markdown_table(rows).splitlines()
    assert len(lines) == 2 + 16 + 1 + 2
    assert "| **0.80** |" in lines[4]
    assert lines[2].startswith("| rms_norm_linear 2x4096 -> 4096 | 10.5 | 15.1 compile | 1.44 | 7.30 | 70% | 3.0e-04 |")
    assert lines[18].startswith("| geometric mean |")
    assert lines[-1] == provenance_line(rows)


def test_a_row_that_is_not_right_has_no_time_and_leaves_no_mean() -> None:
    table = markdown_table(made_rows(broken=0))
    assert "| not right |" in table
    assert "geometric mean" not in table
    text = text_table(made_rows(broken=0))
    assert "without a time: known good 0" in text
    assert "geometric mean of the ratios: none" in text


def test_provenance_tells_gpu_versions_dates_and_commits() -> None:
    rows = made_rows()
    line = provenance_line(rows)
    assert (
        "NVIDIA H200, driver 580.159.04; torch 2.11.0+cu130, triton 3.6.0, python 3.12.3; 2026-11-29; commit abc"
        in line
    )
    rows[0] |= {"date": "2026-11-28T00:00:00+00:00", "commit": "def"}
    assert "2026-11-28 to 2026-11-29; commit def, abc" in provenance_line(rows)
    assert provenance_line([]) == "No rows."


def test_peers_are_listed_fastest_first() -> None:
    line = text_table(made_rows()[:1]).splitlines()[1]
    assert line.index("compile 15.1") < line.index("compile max-autotune") < line.index("eager")
