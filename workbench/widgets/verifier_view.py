"""The view of a verification: the verdict with its number, one random test walked tensor by tensor, the witness.

Invariant: the verdict is that of `wb.verify`; the walk is one test of a reduced instance, which illustrates and decides
nothing. `wb.widgets.VerifierView`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import traitlets

from workbench.domains.field_pairs import field_pair
from workbench.errors import NotApplicableError, WorkbenchError
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.reinstantiate import joint_reduction
from workbench.verify.compare import verify
from workbench.verify.error_bound import bound_per_test
from workbench.verify.radicands import rewrite_square_radicands
from workbench.verify.verdict import Verdict
from workbench.verify.walkthrough import Side, Walkthrough, walk_through
from workbench.views.html import graph_html
from workbench.views.markup import paragraph
from workbench.views.svg import Theme
from workbench.views.verdict_html import verdict_html
from workbench.views.walk_view import StepView, aligned, bound_svg, residues_html, step_views, steps_html, witness_html
from workbench.widgets.panel import Panel, Spec, button, expect, field, pane
from workbench.widgets.worker import Worker

PAIRS = ("w31", "w61", "course", "paper")
_SHORTCUTS = {
    "ArrowRight": ["step", None, "next tensor"],
    "ArrowLeft": ["back", None, "tensor before"],
    "Home": ["first", None, "inputs"],
    "End": ["last", None, "outputs"],
    "r": ["redraw", None, "another random test"],
    "Escape": ["cancel", None, "stop verifying"],
}


class VerifierView(Panel):
    """Shows why two programs are equal, different, or why nobody knows.

    Traits: position: of the walk; length; left, right: which tensor of the program and of the candidate; left_name,
    right_name; pair: field pair of the walk; seed: of the walk; verdict_kind: "" until it is known; agrees: whether the
    outputs of the walked test agree.
    """

    position = traitlets.Int(0, min=0).tag(sync=True)
    length = traitlets.Int(0).tag(sync=True)
    left = traitlets.Int(0, min=0).tag(sync=True)
    right = traitlets.Int(0, min=0).tag(sync=True)
    left_name = traitlets.Unicode().tag(sync=True)
    right_name = traitlets.Unicode().tag(sync=True)
    pair = traitlets.Unicode("w31").tag(sync=True)
    seed = traitlets.Int(0, min=0).tag(sync=True)
    verdict_kind = traitlets.Unicode().tag(sync=True)
    agrees = traitlets.Bool(False).tag(sync=True)
    running = traitlets.Bool(False).tag(sync=True)

    layout_rows: Sequence[Sequence[Spec]] = (
        (pane("verdict", "verdict", grow=2, basis=420), pane("bound", "probability of a wrong “equal”", basis=360)),
        (pane("witness", "witness: real inputs that show the difference", basis=420),),
        (pane("left_steps", "the program, tensor by tensor", basis=380, height=240),
         pane("right_steps", "the candidate, tensor by tensor", basis=380, height=240)),
        (pane("left", "residues in the program", basis=380), pane("right", "residues in the candidate", basis=380)),
        (pane("graphs", "the small instances that are walked", basis=600, height=420),),
    )  # fmt: skip

    def __init__(
        self,
        program: KernelGraph,
        candidate: Any,
        *,
        error: float = 1e-9,
        verdict: Verdict | None = None,
        **values: object,
    ) -> None:
        """Compare two programs; the verdict is worked out beside the notebook, unless it is given.

        candidate: a KernelGraph, or a candidate of `wb.superoptimize`. Raises: UsageError for anything else.
        """
        candidate = getattr(candidate, "graph", candidate)
        expect(program, KernelGraph, "the program")
        expect(candidate, KernelGraph, "the candidate")
        self.program, self.candidate, self.error = program, cast(KernelGraph, candidate), error
        self.verdict = verdict
        self.walk: Walkthrough | None = None
        self.small: tuple[KernelGraph, KernelGraph] | None = None
        self._steps: dict[Side, tuple[StepView, ...]] = {"program": (), "candidate": ()}
        self._worker = Worker("verifier")
        self._said = ""
        self._bounds = dict(verdict.bounds) if verdict is not None else {}
        name = program.name or "program"
        super().__init__(title=f"{name} against {self.candidate.name or 'candidate'}", shortcuts=_SHORTCUTS, **values)
        self.observe(self._moved, "position")
        self.observe(self._walk_anew, ["pair", "seed"])
        self.observe(lambda change: self._draw_steps(), ["left", "right"])
        self.observe(lambda change: self.draw(), "theme")
        self._walk_anew(None)
        if verdict is None:
            self.start()
        self.draw()

    # -------------------------------------------------------------------------------------------------------- verdict
    def start(self) -> None:
        """Work the verdict out, beside the notebook."""
        self.running = True
        self._worker.start(self._verify)

    def _verify(self) -> None:
        try:
            found = verify(self.program, self.candidate, error=self.error, progress=self._say)
            if not self._worker.stopping.is_set():
                self._bounds = dict(found.bounds) or self._bounds_of_the_walk()
                self.verdict = found
        except WorkbenchError as error:
            self._said = str(error)
        finally:
            if not self._worker.stopping.is_set():
                self.running = False
                self.draw()

    def _bounds_of_the_walk(self) -> dict[str, float]:
        """Return what one test of the walked instance is worth, for a verdict that needed no bound."""
        if self.small is None:
            return {}
        bound = bound_per_test(*self.small, field_pair(self.pair))
        return {f"{bound.name}, small instance": bound.per_test} if bound.per_test else {}

    def _say(self, text: str) -> None:
        if self._worker.stopping.is_set():
            return
        self._said = text
        self.put({}, status=text)

    def wait(self, timeout_s: float = 60.0) -> Verdict | None:
        """Return the verdict once it is there, None if the time is over."""
        self._worker.wait(timeout_s)
        return self.verdict

    def do_cancel(self) -> None:
        """Stop verifying."""
        self._worker.stop(0.4)
        self._worker.leave()
        self.running = False
        self._said = "" if self.verdict is not None else "stopped before there was a verdict"
        self.draw()

    def do_verify(self) -> None:
        """Verify again."""
        self.verdict = None
        self.start()
        self.draw()

    # ----------------------------------------------------------------------------------------------------------- walk
    def _walk_anew(self, change: object) -> None:
        """Draw another random test of a small instance."""
        self.walk, failed = None, ""
        try:
            if self.small is None:
                rng = np.random.default_rng(0)
                small = joint_reduction(self.program, self.candidate, rng)
                self.small = rewrite_square_radicands(small[0]), rewrite_square_radicands(small[1])
            self.walk = walk_through(*self.small, pair=self.pair, seed=self.seed)
            self._steps = step_views(self.walk)
        except (NotApplicableError, WorkbenchError) as error:
            failed = str(error)
            self._steps = {"program": (), "candidate": ()}
        self._walk_failed = failed
        counts = [len(steps) for steps in self._steps.values()]
        with self._guard:
            self.length = max(counts)
            self.agrees = self.walk is not None and self.walk.mismatch is None
            self.position = min(self.position, max(self.length - 1, 0))
        self._moved(None)
        if change is not None:
            self.draw()

    def _moved(self, change: object) -> None:
        if self.position >= self.length > 0:
            self.position = self.length - 1
            return
        sides: tuple[Side, Side] = ("program", "candidate")
        left, right = (aligned(self.position, max(len(self._steps[side]), 1), self.length) for side in sides)
        with self._guard:
            self.left, self.right = left, right
        self._draw_steps()

    def do_step(self) -> None:
        """Show the next tensors."""
        self.position = min(self.position + 1, max(self.length - 1, 0))

    def do_back(self) -> None:
        """Show the tensors before."""
        self.position = max(self.position - 1, 0)

    def do_first(self) -> None:
        """Show the first inputs."""
        self.position = 0

    def do_last(self) -> None:
        """Show the outputs."""
        self.position = max(self.length - 1, 0)

    def do_redraw(self) -> None:
        """Walk another random test."""
        self.seed += 1

    def do_show_program(self, number: int) -> None:
        """Show a tensor of the program."""
        self.left = number

    def do_show_candidate(self, number: int) -> None:
        """Show a tensor of the candidate."""
        self.right = number

    # -------------------------------------------------------------------------------------------------------- drawing
    def draw_all(self) -> None:
        """Draw everything."""
        verdict = self.verdict
        if verdict is None:
            told = paragraph(
                f"verifying: {self._said or 'at work'}" if self.running else self._said or "no verdict yet"
            )
            panels = {"verdict": told, "bound": "", "witness": ""}
            status = "verifying" if self.running else self._said
        else:
            bound = bound_svg(self._bounds, self.error, verdict.tests) if self._bounds else ""
            bound += paragraph("proved, so no test is needed: the error is 0") if verdict.proved else ""
            panels = {"verdict": verdict_html(verdict), "bound": bound, "witness": witness_html(verdict)}
            status = verdict.describe().splitlines()[0]
        panels["graphs"] = self._graphs()
        notice = ""
        if self.walk is not None:
            where = self.walk.mismatch
            notice = (
                f"one random test of a small instance, field {self.walk.pair.name}, root of unity {self.walk.omega:,}; "
                + (
                    "its outputs agree"
                    if where is None
                    else f"its outputs differ at output {where.output}{list(where.index)}"
                )
                + (f"; {self.walk.resampled} parts of inputs were drawn again" if self.walk.resampled else "")
            )
        elif self._walk_failed:
            notice = f"no test to walk through: {self._walk_failed}"
        self.put(panels, status=status, notice=notice, verdict_kind=verdict.kind if verdict is not None else "")
        self._draw_steps()

    def _graphs(self) -> str:
        if self.small is None:
            return ""
        theme = cast(Theme, self.theme)
        sides = "".join(f"<div>{graph_html(graph, theme=theme, max_nodes=40)}</div>" for graph in self.small)
        return f'<div class="wb-sides">{sides}</div>'

    def _draw_steps(self) -> None:
        panels: dict[str, str] = {}
        names = ["", ""]
        places: tuple[tuple[Side, Side, int, str], ...] = (
            ("program", "candidate", self.left, "left"),
            ("candidate", "program", self.right, "right"),
        )
        for place, (side, other, now, panel) in enumerate(places):
            steps = self._steps[side]
            if not steps or self.walk is None:
                panels |= {panel: "", f"{panel}_steps": ""}
                continue
            now = min(now, len(steps) - 1)
            theirs = self._steps[other][min((self.right, self.left)[place], len(self._steps[other]) - 1)]
            both = steps[now].step.is_output and theirs.step.is_output
            moduli = (self.walk.pair.p, self.walk.pair.q)
            panels[panel] = residues_html(steps[now], theirs if both else None, moduli)
            panels[f"{panel}_steps"] = steps_html(steps, now, side)
            names[place] = steps[now].name
        self.put(panels, left_name=names[0], right_name=names[1])
        self._draw_controls()

    def _draw_controls(self) -> None:
        shown = f"{self.position + 1} of {self.length}"
        self.controls = [
            button("back", "◀ back", disabled=not self.position),
            button("step", "step ▶", primary=True, disabled=self.position >= self.length - 1),
            field("range", "position", "tensor", min=0, max=max(self.length - 1, 0), shown=shown),
            button("redraw", "another random test"),
            field("select", "pair", "field", options=[[name, name] for name in PAIRS]),
            button("cancel", "■ stop", disabled=not self.running),
            button("verify", "verify again", disabled=self.running),
        ]

    def describe(self) -> str:
        """Return the verdict and the tensors shown, as plain text."""
        verdict = self.verdict.describe() if self.verdict is not None else self.status
        return f"VerifierView: {self.title}. {verdict}\nshowing {self.left_name} beside {self.right_name}"

    def settle(self, timeout_s: float) -> None:
        """Wait for what is worked out beside the notebook."""
        self._worker.wait(timeout_s)

    def free(self) -> None:
        """Stop the thread."""
        self._worker.stop()
