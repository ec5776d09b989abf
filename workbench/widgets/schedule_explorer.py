"""The explorer of schedules: which grids, loops and launches fit, what they should cost, what was measured.

Invariant: a cell shows the cheapest legal schedule in it; its breakdown is that of the graph which this schedule makes.
`wb.widgets.ScheduleExplorer`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

import traitlets

from workbench.cost.estimate import estimate
from workbench.cost.hardware import hardware
from workbench.cost.heat_map import HeatMap
from workbench.cost.schedules import KernelTable, ScheduleSpace
from workbench.errors import NotApplicableError, UsageError, WorkbenchError
from workbench.records.candidates import shipped_candidates
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.serialize import loads
from workbench.views.markup import paragraph, pre
from workbench.views.schedule_view import (
    METRICS,
    MeasuredSchedule,
    cell_counts,
    cell_row,
    heat_svg,
    parameters_html,
    parameters_of,
    parts_svg,
)
from workbench.views.small_roofline import modelled_point, small_roofline_svg
from workbench.widgets.panel import Panel, Spec, button, expect, field, pane
from workbench.widgets.worker import Worker

_SHORTCUTS = {
    "ArrowRight": ["move", [1, 0], "cell to the right"],
    "ArrowLeft": ["move", [-1, 0], "cell to the left"],
    "ArrowUp": ["move", [0, 1], "cell above"],
    "ArrowDown": ["move", [0, -1], "cell below"],
    "b": ["best", None, "cheapest cell"],
    "m": ["next_metric", None, "cost, fits, measured"],
}


class ScheduleExplorer(Panel):
    """Explores the schedules of a structure.

    Traits: x, y: parameters; kernel: number of the graph-defined operator; metric: "cost", "fits" or "measured"; cell: values
    of x and y chosen; fixed: other parameters that are held; cost_us: of the cell, nan where nothing fits; legal: schedules
    that fit; chosen: parameters per kernel of the cell's schedule.
    """

    x = traitlets.Unicode().tag(sync=True)
    y = traitlets.Unicode().tag(sync=True)
    kernel = traitlets.Unicode("0").tag(sync=True)
    metric = traitlets.Enum(METRICS, "cost").tag(sync=True)
    cell = traitlets.List(traitlets.Int()).tag(sync=True)
    fixed = traitlets.Dict().tag(sync=True)
    cost_us = traitlets.Float(float("nan"))
    legal = traitlets.Int(0).tag(sync=True)
    chosen: traitlets.List[dict[str, int]] = traitlets.List().tag(sync=True)
    ready = traitlets.Bool(False).tag(sync=True)

    layout_rows: Sequence[Sequence[Spec]] = (
        (pane("map", "schedules", basis=700, height=560),),
        (
            pane("cell", "the chosen cell", basis=250),
            pane("parts", "where its time goes", basis=300),
            pane("roofline", "roofline", basis=340),
        ),
    )

    def __init__(
        self,
        graph: Any,
        device: str = "h200",
        *,
        space: ScheduleSpace | None = None,
        measured: Sequence[MeasuredSchedule] | None = None,
        **values: object,
    ) -> None:
        """Explore the schedules of a graph's structure; scoring them happens beside the notebook.

        graph: a KernelGraph with block graphs, or a candidate. measured: times, by default those that ship for this
        structure at these sizes. Raises: UsageError for a program without block graphs; UnknownNameError for a device.
        """
        graph = getattr(graph, "graph", graph)
        expect(graph, KernelGraph, "what is scheduled")
        self.graph = cast(KernelGraph, graph)
        if not self.graph.graph_defined:
            raise UsageError("a program without block graphs has no schedules; give one of wb.programs.known_good(...)")
        self.hardware = hardware(device)
        self.device = device
        self.space = space
        self.measured = None if measured is None else tuple(measured)
        self._failed = ""
        self._counted: tuple[tuple[int, str, str], dict[tuple[int, int], tuple[int, int]]] | None = None
        self._worker = Worker("schedules")
        name = self.graph.name or "graph"
        super().__init__(title=f"schedules of {name} on {self.hardware.title}", shortcuts=_SHORTCUTS, **values)
        self.observe(self._changed, ["x", "y", "fixed"])
        self.observe(self._follow_kernel, "kernel")
        self.observe(lambda change: self._draw_map(), "metric")
        self.observe(lambda change: self._draw_cell(), "cell")
        if space is not None:
            self._prepare()
        else:
            self.put({"map": paragraph("scoring the schedules")}, status="scoring")
            self._worker.start(self._score)

    # --------------------------------------------------------------------------------------------------------- scoring
    def _score(self) -> None:
        try:
            self.space = ScheduleSpace(self.graph, hardware=self.hardware)
            self._prepare()
        except WorkbenchError as error:
            self._failed = str(error)
            self.put({"map": paragraph(self._failed)}, status="no schedules", ready=True)

    def _prepare(self) -> None:
        if self.measured is None:
            self.measured = shipped_times(self.graph, self.device)
        assert self.space is not None
        names = self._names()
        with self._guard:
            if self.x not in names or self.y not in names or self.x == self.y:
                ranked = sorted(names, key=lambda name: -len(set(self._table().all_columns[name].tolist())))
                self.x, self.y = ranked[0], ranked[1]
            self.legal = self.space.size
        self._changed(None)
        self.put({}, ready=True)

    def wait(self, timeout_s: float = 30.0) -> bool:
        """Return whether the schedules are scored, after waiting for it."""
        end = time.monotonic() + timeout_s
        while not self.ready and time.monotonic() < end:
            time.sleep(0.02)
        return self.ready and not self._failed

    def _table(self) -> KernelTable:
        assert self.space is not None
        number = int(self.kernel)
        return self.space.kernels[number if 0 <= number < len(self.space.kernels) else 0]

    def _names(self) -> list[str]:
        """Return the parameters that have more than one value."""
        columns = self._table().all_columns
        many = [name for name in self._table().names if len(set(columns[name].tolist())) > 1]
        return many if len(many) > 1 else list(self._table().names)[:2]

    # --------------------------------------------------------------------------------------------------------- changes
    def _follow_kernel(self, change: object) -> None:
        if self.space is None:
            return
        names = self._names()
        with self._guard:
            self.fixed = {}
            if self.x not in names or self.y not in names:
                self.x, self.y = names[0], names[1]
        self._changed(None)

    def _changed(self, change: object) -> None:
        if self.space is None:
            return
        try:
            heat = self.heat()
        except WorkbenchError as error:
            self.put({}, notice=str(error))
            self._draw_controls()
            return
        self.notice = ""
        if len(self.cell) != 2 or self.cell[0] not in heat.x_values or self.cell[1] not in heat.y_values:
            self.do_best()
        self._draw_map()
        self._draw_cell()
        self._draw_controls()

    def heat(self) -> HeatMap:
        """Return the map as data. Raises: UnknownNameError, UsageError for parameters that do not fit."""
        if self.space is None:
            raise UsageError("the schedules are not scored yet; wait() for them")
        return self.space.heatmap(self.x, self.y, dict(self.fixed), kernel=self._number())

    def _number(self) -> int:
        assert self.space is not None
        number = int(self.kernel)
        return number if 0 <= number < len(self.space.kernels) else 0

    def do_best(self) -> None:
        """Choose the cheapest cell."""
        heat = self.heat()
        best = min(
            (
                (float(heat.cost_us[row, column]), x, y)
                for row, y in enumerate(heat.y_values)
                for column, x in enumerate(heat.x_values)
                if heat.fits[row, column]
            ),
            default=(0.0, heat.x_values[0], heat.y_values[0]),
        )
        self.cell = [best[1], best[2]]

    def do_move(self, step: Sequence[int]) -> None:
        """Choose a neighbouring cell."""
        heat = self.heat()
        x, y = heat.x_values.index(self.cell[0]) + step[0], heat.y_values.index(self.cell[1]) + step[1]
        x, y = min(max(x, 0), len(heat.x_values) - 1), min(max(y, 0), len(heat.y_values) - 1)
        self.cell = [heat.x_values[x], heat.y_values[y]]

    def do_next_metric(self) -> None:
        """Show the next kind of number."""
        self.metric = METRICS[(METRICS.index(self.metric) + 1) % len(METRICS)]

    # --------------------------------------------------------------------------------------------------------- drawing
    def _measured_cells(self) -> dict[tuple[int, int], float]:
        cells: dict[tuple[int, int], float] = {}
        for one in self.measured or ():
            found = one.parameters
            if self.x in found and self.y in found and all(found.get(n) == v for n, v in self.fixed.items()):
                key = found[self.x], found[self.y]
                cells[key] = min(one.time_us, cells.get(key, one.time_us))
        return cells

    def _cell_counts(self, tab: KernelTable) -> dict[tuple[int, int], tuple[int, int]]:
        key = (self._number(), self.x, self.y)
        if self._counted is None or self._counted[0] != key:
            self._counted = key, cell_counts(tab, self.x, self.y)
        return self._counted[1]

    def _draw_map(self) -> None:
        if self.space is None or len(self.cell) != 2:
            return
        heat, tab = self.heat(), self._table()
        counts = self._cell_counts(tab)
        measured = self._measured_cells() if self._number() == 0 else {}
        svg = heat_svg(heat, counts, measured, self.metric, (self.cell[0], self.cell[1]))
        of = f"of kernel {self._table().tiling.label} alone" if len(self.space.kernels) > 1 else "of a cell"
        cells = "1 cell of this map was" if len(measured) == 1 else f"{len(measured)} cells of this map were"
        told = {
            "cost": f"least modelled time {of}, in microseconds; strong is cheap; crossed out: nothing fits",
            "fits": "share of a cell's schedules that a block can hold",
            "measured": f"measured time of the whole program, in microseconds, L2 cold; {cells} measured",
        }[self.metric]
        refused = ", ".join(f"{reason} {number:,}" for reason, number in self.space.refused.items())
        self.put(
            {"map": svg + paragraph(told, "wb-quiet")},
            status=f"{self.space.size:,} schedules fit; left out: {refused or 'none'}",
        )
        self._draw_controls()

    def _draw_cell(self) -> None:
        if self.space is None or len(self.cell) != 2:
            return
        wanted = {**self.fixed, self.x: self.cell[0], self.y: self.cell[1]}
        where = f"{self.x} = {self.cell[0]}, {self.y} = {self.cell[1]}"
        row = cell_row(self.space, self._number(), wanted)
        if row is None:
            gone = paragraph(f"{where}: no schedule fits")
            self.put({"cell": gone, "parts": "", "roofline": ""}, cost_us=float("nan"), chosen=[])
            self._draw_map()
            return
        whole = (
            ", modelled; the whole program with the best of its other kernels"
            if len(row.parameters) > 1
            else ", modelled"
        )
        told = paragraph(f"{where}: {row.cost_us:.2f} us{whole}")
        measured = self._measured_cells().get((self.cell[0], self.cell[1]))
        told += paragraph(f"measured in this cell: {measured:.2f} us (L2 cold)") if measured is not None else ""
        try:
            made = self.space.realize(row)
            cost = estimate(made.graph, hardware=self.hardware, choices=made.choices, preset=self.space.preset)
            point = modelled_point(f"{cost.total_us:.2f} us", cost)
            parts = parts_svg(cost)
            roofline = small_roofline_svg([point] if point else [], self.hardware)
            told += f"<details><summary>as text</summary>{pre(cost.describe())}</details>"
        except NotApplicableError as error:
            parts, roofline = paragraph(f"no graph has this schedule: {error}"), ""
        panels = {"cell": told + parameters_html(row.parameters), "parts": parts, "roofline": roofline}
        self.put(panels, cost_us=row.cost_us, chosen=[dict(one) for one in row.parameters])
        self._draw_map()

    def _draw_controls(self) -> None:
        if self.space is None:
            return
        names = [[name, name] for name in self._names()]
        made: list[Spec] = []
        if len(self.space.kernels) > 1:
            options = [[str(n), f"{n}: {t.tiling.label}"] for n, t in enumerate(self.space.kernels)]
            made.append(field("select", "kernel", "kernel", options=options))
        made += [
            field("select", "x", "x", options=names),
            field("select", "y", "y", options=names),
            field("select", "metric", "show", options=[[metric, metric] for metric in METRICS]),
            button("best", "cheapest cell", primary=True),
        ]
        self.controls = made

    def describe(self) -> str:
        """Return the chosen cell as plain text."""
        if self.space is None or len(self.cell) != 2:
            return f"ScheduleExplorer: {self.title}. {self.status}"
        return (
            f"ScheduleExplorer: {self.title}. {self.status}; {self.x} = {self.cell[0]}, {self.y} = {self.cell[1]}: "
            f"{self.cost_us:.2f} us modelled, {self.chosen}"
        )

    def settle(self, timeout_s: float) -> None:
        """Wait for what is worked out beside the notebook."""
        self._worker.wait(timeout_s)

    def free(self) -> None:
        """Stop the thread."""
        self._worker.stop()


def shipped_times(graph: KernelGraph, device: str) -> tuple[MeasuredSchedule, ...]:
    """Return the measured times that ship for a structure at its sizes; () without any."""
    found = []
    shapes = [tensor.shape for tensor in graph.inputs]
    try:
        records = shipped_candidates().records()
    except OSError:
        return ()
    for record in records:
        if record["device"] != device or record.get("cold_us") is None:
            continue
        try:
            other = loads(record["graph"])
            one = other[0] if isinstance(other, list) else other
            if [t.shape for t in one.inputs] != shapes or one.structure_hash != graph.structure_hash:
                continue
            schedules = cast(Mapping[str, Mapping[str, object]], record["schedules"])
            found.append(MeasuredSchedule(parameters_of(one, schedules, 0), float(record["cold_us"])))
        except (WorkbenchError, StopIteration, LookupError):
            continue
    return tuple(found)
