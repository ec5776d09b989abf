"""One random test as view data: every tensor of both programs with its residues, aligned from inputs to outputs.

Invariant: residues are those of the walkthrough; what is cut of a tensor is said beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from workbench.ops.spec import Array
from workbench.units import counted
from workbench.verify.verdict import Verdict
from workbench.verify.walkthrough import Side, ValueStep, Walkthrough
from workbench.views.markup import Cell, Row, doing, facts, paragraph, showing, table, words

ROWS, COLUMNS = 6, 5
"""Elements of a tensor that a table shows."""


@dataclass(frozen=True, slots=True)
class StepView:
    """One tensor.

    Attributes: number: in its program; name; where; shape, in words; twins: tensors of the other program that have the same
    residues; step.
    """

    number: int
    name: str
    where: str
    shape: str
    twins: tuple[str, ...]
    step: ValueStep


def step_views(walk: Walkthrough) -> dict[Side, tuple[StepView, ...]]:
    """Return the tensors of each program, each with those of the other that have the same values."""
    prints: dict[Side, dict[bytes, list[str]]] = {"program": {}, "candidate": {}}
    for step in walk.steps:
        prints[step.side].setdefault(_print(step), []).append(_name(step))
    found: dict[Side, tuple[StepView, ...]] = {}
    sides: tuple[tuple[Side, Side], ...] = (("program", "candidate"), ("candidate", "program"))
    for side, other in sides:
        found[side] = tuple(
            StepView(number, _name(step), _where(step), _shape(step), tuple(prints[other].get(_print(step), ())), step)
            for number, step in enumerate(walk.side(side))
        )
    return found


def _print(step: ValueStep) -> bytes:
    """Return what equal tensors share: shape without leading ones, and residues."""
    shape = tuple(step.shape)
    while shape and shape[0] == 1:
        shape = shape[1:]
    q = b"" if step.q is None else np.ascontiguousarray(np.broadcast_to(step.q, step.shape)).tobytes()
    return repr(shape).encode() + np.ascontiguousarray(np.broadcast_to(step.p, step.shape)).tobytes() + q


def _name(step: ValueStep) -> str:
    return " / ".join(step.path)


def _where(step: ValueStep) -> str:
    if step.is_input:
        return "input"
    return "output" if step.is_output else "tile" if step.level == "block" else "intermediate"


def _shape(step: ValueStep) -> str:
    if step.level == "kernel":
        return "×".join(map(str, step.shape)) or "scalar"
    grid, tile = step.shape[:4], step.shape[4:]
    told = [] if math.prod(grid[:3]) == 1 else [f"{'×'.join(map(str, grid[:3]))} blocks"]
    told += [] if grid[3] == 1 else [f"{grid[3]} iterations"]
    return ("×".join(map(str, tile)) or "scalar") + (f" in {', '.join(told)}" if told else "")


def aligned(position: int, count: int, longest: int) -> int:
    """Return which tensor of a program with `count` stands beside a position out of `longest`; last beside last."""
    return 0 if longest < 2 else round(position * (count - 1) / (longest - 1))


def steps_html(steps: Sequence[StepView], now: int, side: Side) -> str:
    """Return the tensors of one program as a list to click."""
    rows = [
        Row((view.name, view.where, view.shape, ", ".join(view.twins)), "wb-now" if view.number == now else "",
            doing(f"show_{side}", view.number))
        for view in steps
    ]  # fmt: skip
    return table(("tensor", "what", "shape", "same residues as"), rows)


def residues_html(view: StepView, other: StepView | None, moduli: tuple[int, int]) -> str:
    """Return a tensor's residues modulo p and modulo q; those that differ from the other tensor's are marked.

    other: the tensor it is compared with, None for no comparison.
    """
    step = view.step
    p, q = (None if a is None else np.broadcast_to(a, step.shape) for a in (step.p, step.q))
    assert p is not None
    theirs = None if other is None or other.step.shape != step.shape else other.step
    other_p = None if theirs is None else np.broadcast_to(theirs.p, step.shape)
    other_q = None if theirs is None or theirs.q is None else np.broadcast_to(theirs.q, step.shape)
    told = [("tensor", view.name), ("shape", view.shape), ("same residues as", ", ".join(view.twins))]
    parts = [facts(told)]
    parts.append(f"<p>modulo p = {moduli[0]:,}</p>{_matrix(p, other_p)}")
    if q is None:
        parts.append(paragraph("no residues modulo q: it passed through an exponential", "wb-quiet"))
    else:
        parts.append(f"<p>modulo q = {moduli[1]:,}</p>{_matrix(q, other_q)}")
    return "".join(parts)


def _matrix(values: Array, others: Array | None) -> str:
    """Return the first rows and columns of the last two dimensions, at index 0 of the others."""
    rank = max(values.ndim, 2)
    flat = values.reshape((1,) * (rank - values.ndim) + values.shape)
    shape = flat.shape
    flat = flat[(0,) * (rank - 2)][:ROWS, :COLUMNS]
    compared = None
    if others is not None:
        compared = others.reshape(shape)[(0,) * (rank - 2)][:ROWS, :COLUMNS]
    rows = []
    for row in range(flat.shape[0]):
        cells = []
        for column in range(flat.shape[1]):
            value = int(flat[row, column])
            differs = compared is not None and int(compared[row, column]) != value
            mark = ' class="wb-differs" title="differs from the other program"' if differs else ""
            cells.append(f"<td{mark}>{value}{' ≠' if differs else ''}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    total = int(np.prod(shape))
    notice = showing(flat.size, total, "elements", "read `walk` for all")
    return f'<table class="wb-residues"><tbody>{"".join(rows)}</tbody></table>' + (
        paragraph(notice, "wb-quiet") if notice else ""
    )


def bound_svg(bounds: Mapping[str, float], wanted: float, tests: int) -> str:
    """Return the bound on a wrong "equal" against the number of tests, one line per bound, and what was wanted."""
    usable = {name: value for name, value in bounds.items() if 0 < value < 1}
    most = max(tests, 4, *(math.ceil(math.log(wanted) / math.log(value)) for value in usable.values()), 1)
    most = min(most, 64)
    deepest = max(min([math.log10(wanted), *(most * math.log10(v) for v in usable.values())]), 4 * math.log10(wanted))
    left, top, wide, high = 54.0, 12.0, 280.0, 150.0
    foot = top + high + 22 + 13 * len(usable)

    def place(count: float, log: float) -> tuple[float, float]:
        return left + wide * count / most, top + high * min(1.0, log / deepest)

    parts = [f'<rect class="wb-off" x="{left}" y="{top}" width="{wide}" height="{high}"/>']
    _, y = place(0, math.log10(wanted))
    parts.append(
        f'<path class="wb-cut" d="M{left} {y:.1f} h{wide}"/><text x="{left + wide - 4}" y="{y - 4:.1f}" font-size="10.5" '
        f'text-anchor="end">wanted: {wanted:.0e}</text>'
    )
    for line, (name, value) in enumerate(usable.items()):
        last = min(float(most), deepest / math.log10(value))
        (x, y), (end_x, end_y) = place(0, 0), place(last, last * math.log10(value))
        dash, mark = (' stroke-dasharray="5 3"', "- -") if line % 2 else ("", "—")
        parts.append(
            f'<path d="M{x:.1f} {y:.1f} L{end_x:.1f} {end_y:.1f}" fill="none" stroke="currentColor" stroke-width="1.8"{dash}/>'
            f'<text x="{left}" y="{top + high + 28 + 13 * line:.0f}" font-size="10.5">{mark} {words(name)}: {value:.2g} a '
            "test</text>"
        )
    if tests:
        x, _ = place(min(tests, most), 0)
        told = f"{counted(tests, 'test')} {'was' if tests == 1 else 'were'}"
        parts.append(f'<path class="wb-stroke" d="M{x:.1f} {top} v{high}"/><text class="wb-quiet" x="{x + 4:.1f}" '
                     f'y="{top + high - 5}" font-size="10.5">{told} run</text>')  # fmt: skip
    parts += [
        f'<text class="wb-quiet" x="{left - 6}" y="{top + 8}" font-size="10.5" text-anchor="end">1</text>',
        f'<text class="wb-quiet" x="{left - 6}" y="{top + high}" font-size="10.5" text-anchor="end">1e{deepest:.0f}</text>',
        f'<text class="wb-quiet" x="{left}" y="{top + high + 14}" font-size="10.5">0</text>',
        f'<text class="wb-quiet" x="{left + wide}" y="{top + high + 14}" font-size="10.5" text-anchor="end">'
        f"{counted(most, 'test')}</text>",
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="error bound against tests" '
        f'viewBox="0 0 350 {foot}" width="350" height="{foot}">{"".join(parts)}</svg>'
    )


def witness_html(verdict: Verdict) -> str:
    """Return the witness of a refusal: the element, both values, and the inputs that show it; "" without one."""
    witness = verdict.witness
    if witness is None:
        return ""
    told = [
        ("element", f"output {witness.output}{list(witness.index)}"),
        ("the program gives", f"{witness.left:.9g}"),
        ("the candidate gives", f"{witness.right:.9g}"),
        ("arithmetic", witness.how),
        ("apart by", "" if witness.gap is None else f"{witness.gap:.3g}"),
    ]
    parts = [facts(told)]
    for number, array in enumerate(witness.inputs):
        flat = np.atleast_2d(np.asarray(array))
        while flat.ndim > 2:
            flat = flat[0]
        cut = flat[:ROWS, :COLUMNS]
        rows = [Row(tuple(Cell(f"{value:.4g}", is_number=True) for value in row)) for row in cut]
        notice = showing(cut.size, int(np.size(array)), "elements", "read `verdict.witness.inputs` for all")
        shape = "×".join(map(str, np.shape(array))) or "scalar"
        parts.append(paragraph(f"input {number}, {shape}" + (f"; {notice}" if notice else ""), "wb-quiet"))
        parts.append(table((), rows, "wb-residues"))
    return "".join(parts)
