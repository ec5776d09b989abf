"""The explorer of schedules by its traits: a cell's cost is the least of its rows, its breakdown that of a real graph."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

import workbench as wb
from workbench.cost.estimate import estimate
from workbench.cost.hardware import hardware
from workbench.errors import UnknownNameError, UsageError
from workbench.views.schedule_view import MeasuredSchedule, Metric, cell_row
from workbench.widgets.schedule_explorer import ScheduleExplorer

GRAPH = wb.programs.known_good("rms_norm_linear")[0]


@pytest.fixture(scope="module")
def explorer() -> Iterator[ScheduleExplorer]:
    """An explorer whose schedules are scored."""
    made = ScheduleExplorer(GRAPH, measured=[MeasuredSchedule({"c": 128, "loop": 16, "threads": 256}, 10.5)])
    assert made.wait()
    yield made
    made.close()


def test_a_cell_holds_the_least_cost(explorer: ScheduleExplorer) -> None:
    explorer.x, explorer.y = "c", "loop"
    explorer.do_best()
    assert explorer.space is not None
    table = explorer.space.kernels[0]
    inside = (table.columns["c"] == explorer.cell[0]) & (table.columns["loop"] == explorer.cell[1])
    assert explorer.cost_us == pytest.approx(float(table.cost_us[inside].min()) + explorer.space.fixed_us)
    assert explorer.cost_us == pytest.approx(explorer.space.best(1)[0].cost_us, rel=1e-6)


def test_the_breakdown_is_that_of_the_graph(explorer: ScheduleExplorer) -> None:
    assert explorer.space is not None
    for cell in ([64, 16], [128, 32]):
        explorer.x, explorer.y = "c", "loop"
        explorer.cell = cell
        row = cell_row(explorer.space, 0, {"c": cell[0], "loop": cell[1]})
        assert row is not None
        made = explorer.space.realize(row)
        cost = estimate(made.graph, hardware=hardware("h200"), choices=made.choices, preset=explorer.space.preset)
        assert cost.total_us == pytest.approx(explorer.cost_us, rel=1e-6)
        assert f"{cost.parts['device memory']:.2f} us" in explorer.panels["parts"]
        assert explorer.chosen[0]["c"] == cell[0]
        assert "<circle" in explorer.panels["roofline"]


def test_a_cell_in_which_nothing_fits(explorer: ScheduleExplorer) -> None:
    explorer.x, explorer.y = "c", "loop"
    heat = explorer.heat()
    row, column = np.argwhere(~heat.fits)[0]
    explorer.cell = [heat.x_values[column], heat.y_values[row]]
    assert math.isnan(explorer.cost_us)
    assert "no schedule fits" in explorer.panels["cell"]
    assert explorer.chosen == []


def test_keys_move_within_the_map(explorer: ScheduleExplorer) -> None:
    explorer.do_best()
    heat = explorer.heat()
    for _ in range(len(heat.x_values) + 3):
        explorer.do_move([1, 0])
    assert explorer.cell[0] == heat.x_values[-1]
    explorer.do_move([-1, 0])
    assert explorer.cell[0] == heat.x_values[-2]


@pytest.mark.parametrize(
    ("metric", "words"), [("fits", "a block can hold"), ("measured", "1 cell of this map"), ("cost", "least modelled")]
)
def test_three_kinds_of_numbers(explorer: ScheduleExplorer, metric: Metric, words: str) -> None:
    explorer.x, explorer.y = "c", "loop"
    explorer.metric = metric
    assert words in explorer.panels["map"]
    assert (">10.5</text>" in explorer.panels["map"]) == (metric == "measured") or metric == "cost"


def test_parameters_that_do_not_fit_are_told(explorer: ScheduleExplorer) -> None:
    explorer.x, explorer.y = "c", "loop"
    explorer.fixed = {"threads": 7}
    assert "no schedule has threads = 7" in explorer.notice
    explorer.fixed = {"threads": 256}
    assert explorer.notice == ""
    assert all(row["threads"] == 256 for row in explorer.chosen)
    explorer.fixed = {}


def test_two_kernels_whose_splits_are_tied() -> None:
    made = ScheduleExplorer(wb.programs.known_good("gqa")[0])
    assert made.wait()
    assert len(made.chosen) == 2
    assert made.chosen[1]["split0"] == made.chosen[0]["split"]
    made.kernel = "1"
    assert made.x in ("a", "b", "threads", "split0")
    made.close()
    assert not made._worker.is_running


def test_what_has_no_schedules() -> None:
    with pytest.raises(UsageError, match="without block graphs"):
        ScheduleExplorer(wb.programs.get("rms_norm_linear"))
    with pytest.raises(UnknownNameError):
        ScheduleExplorer(GRAPH, device="h9000")
