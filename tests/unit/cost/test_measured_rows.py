"""Rows that a preset was fitted to: as they ship, as files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from workbench import programs
from workbench.cost.calibration import Predictor, Row, median_error, predict, spearman
from workbench.cost.estimate import features
from workbench.cost.hardware import hardware
from workbench.cost.measured_rows import read_rows, row_from_json, row_to_json, write_rows
from workbench.cost.presets import preset
from workbench.errors import FormatError

H200 = hardware("h200")


def test_the_shipped_preset_foresees_the_shipped_rows() -> None:
    rows = list({id(row): row for row in read_rows()}.values())
    whole = [row for row in rows if " | " not in row.label]
    others = [row for row in rows if " | " in row.label]
    for chosen, least, most in ((whole, 0.85, 0.12), (others, 0.96, 0.10)):
        mine = list(Predictor(chosen, H200).times(preset("calibrated").coefficients))
        theirs = [row.measured_us for row in chosen]
        assert spearman(mine, theirs) >= least
        assert median_error(mine, theirs) <= most


@pytest.mark.parametrize("graph", [programs.get("gqa"), programs.known_good("gqa")[0], programs.get("softmax")])
def test_a_row_comes_back_from_its_file(graph: object, tmp_path: Path) -> None:
    row = Row(features(graph, H200), 12.5, True, "gqa | one")  # type: ignore[arg-type]
    write_rows(tmp_path / "rows.jsonl", [row_to_json(row, weight=2)])
    found = read_rows(tmp_path / "rows.jsonl")
    assert len(found) == 2
    assert (found[0].label, found[0].measured_us, found[0].cold) == ("gqa | one", 12.5, True)
    assert predict(found[0].features, H200) == pytest.approx(predict(row.features, H200), rel=1e-4)


def test_what_is_no_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="schema"):
        row_from_json({"schema": "another"})
    (tmp_path / "rows.jsonl").write_text(json.dumps({"schema": "mugraph-workbench/cost-row", "kernels": 3}) + "\n")
    with pytest.raises(FormatError, match="no row"):
        read_rows(tmp_path / "rows.jsonl")
    (tmp_path / "rows.jsonl").write_text("{\n")
    with pytest.raises(FormatError, match="line 1"):
        read_rows(tmp_path / "rows.jsonl")
