"""The launchpad: a program, its sizes and a device in; certified, timed and exported kernels out. `wb.widgets.Launchpad`.

Invariant: it does nothing that `wb.superoptimize` and a candidate's own methods do not do; work happens beside the
notebook and can be stopped, which keeps what is there. Without a GPU it says so and replays records.
Long because every control of one page is declared, obeyed and drawn here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import traitlets

from workbench.codegen.cuda.kernel_level import emit_program
from workbench.cost.estimate import estimate
from workbench.cost.hardware import hardware, hardware_names
from workbench.device.architecture import architecture
from workbench.device.executable import compile_program, for_architecture
from workbench.device.nvrtc import load_nvrtc
from workbench.errors import KernelCompileError, UsageError, WorkbenchError
from workbench.pipeline.candidate import Candidate
from workbench.pipeline.progress import Stage
from workbench.pipeline.result import Result
from workbench.pipeline.superoptimize import Options, superoptimize
from workbench.pipeline.trial import device_is_here, measure_candidates
from workbench.programs import registry
from workbench.records.measurements import shipped_measurements
from workbench.search.space import Space
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.units import counted
from workbench.views.html import graph_html
from workbench.views.launch_view import Timed, candidates_html, progress_html, refused_html, times_svg
from workbench.views.markup import Cell, Row, number, paragraph, pre, table, words
from workbench.views.schedule_view import parts_svg
from workbench.views.small_roofline import modelled_point, small_roofline_svg
from workbench.views.svg import Theme
from workbench.views.verdict_html import verdict_html
from workbench.widgets.panel import Panel, Spec, button, field, next_line, pane
from workbench.widgets.schedule_explorer import shipped_times
from workbench.widgets.typed_program import typed_program
from workbench.widgets.worker import Worker

AS_WRITTEN = "the program as written"
TYPED = "a formula of your own"
DRAW_S = 0.1
_SHORTCUTS = {
    "ArrowDown": ["move", 1, "next candidate"],
    "ArrowUp": ["move", -1, "candidate before"],
    "s": ["search", None, "search"],
    "c": ["compile", None, "compile the candidate"],
    "p": ["profile", None, "profile"],
    "Escape": ["cancel", None, "stop"],
}


class Launchpad(Panel):
    """Searches, compiles, profiles and exports.

    Traits: program: name of a studied program, or "a formula of your own"; sizes: `batch=16 hidden=4096`, of a formula the
    inputs' shapes `X=16x64`; formula; device; budget: seconds; keep: candidates; fresh: ignore earlier answers; folder: of
    an export; running; stage; done, total: of the stage; chosen: number of a candidate; candidates: how many; has_gpu.
    """

    program = traitlets.Unicode("rms_norm_linear").tag(sync=True)
    sizes = traitlets.Unicode().tag(sync=True)
    formula = traitlets.Unicode("rms_norm(X) * G @ W").tag(sync=True)
    device = traitlets.Unicode("h200").tag(sync=True)
    budget = traitlets.Int(120, min=1).tag(sync=True)
    keep = traitlets.Int(4, min=1, max=32).tag(sync=True)
    max_block_ops = traitlets.Int(11, min=1, max=16).tag(sync=True)
    fresh = traitlets.Bool(False).tag(sync=True)
    folder = traitlets.Unicode("exported").tag(sync=True)
    running = traitlets.Bool(False).tag(sync=True)
    stage = traitlets.Unicode().tag(sync=True)
    done = traitlets.Int(0).tag(sync=True)
    total = traitlets.Int(0).tag(sync=True)
    chosen = traitlets.Int(0, min=0).tag(sync=True)
    candidates = traitlets.Int(0).tag(sync=True)
    has_gpu = traitlets.Bool(False).tag(sync=True)
    limit = traitlets.Int(40, min=1)

    layout_rows: Sequence[Sequence[Spec]] = (
        (pane("progress", "run", grow=2, basis=380), pane("request", "the program", basis=320, height=300)),
        (pane("candidates", "candidates, the fastest first", basis=700, height=300),),
        (pane("times", "times, and how often faster than the program as written", grow=2, basis=460),
         pane("roofline", "roofline of the candidates", basis=380)),
        (pane("graph", "the chosen candidate", grow=2, basis=420, height=460),
         pane("kernels", "its kernels", grow=2, basis=420, height=460)),
        (pane("refused", "left out, and why", basis=600, height=300),),
    )  # fmt: skip

    def __init__(self, program: str | KernelGraph | None = None, **values: object) -> None:
        """Prepare; nothing is searched yet. program: a name, or a KernelGraph of the user's own."""
        self.graph = program if isinstance(program, KernelGraph) else None
        if isinstance(program, str):
            values["program"] = program
        self.result: Result | None = None
        self.options = Options()
        self._worker = Worker("launchpad")
        self._stages: list[str] = []
        self._drawn = 0.0
        self._note = ""
        self._kernels: dict[str, str] = {}
        super().__init__(title="launchpad", shortcuts=_SHORTCUTS, **values)
        if not self.sizes and self.graph is None:
            self.sizes = self._default_sizes()
        self.has_gpu = device_is_here(self.device)
        self.observe(self._follow_program, "program")
        self.observe(self._follow_request, ["sizes", "formula"])
        self.observe(self._follow_device, "device")
        self.observe(lambda change: self._draw_chosen(), ["chosen", "theme"])
        self.observe(lambda change: self._draw_controls(), ["running", "candidates"])
        self._draw_controls()
        self.draw()

    # --------------------------------------------------------------------------------------------------------- request
    def _default_sizes(self) -> str:
        if self.program == TYPED:
            return "X=16x4096 G=4096 W=4096x4096"
        return " ".join(f"{name}={size}" for name, size in registry.program(self.program).defaults.items())

    def _follow_program(self, change: object) -> None:
        self.graph = None
        self.sizes = self._default_sizes()
        self._draw_controls()
        self.draw()

    def _follow_request(self, change: object) -> None:
        self.draw()

    def _follow_device(self, change: object) -> None:
        self.has_gpu = device_is_here(self.device)
        self.draw()

    def asked(self) -> KernelGraph:
        """Return the program that is asked for. Raises: UsageError and others for sizes or a formula that make none."""
        if self.graph is not None:
            return self.graph
        if self.program == TYPED:
            return typed_program(self.formula, self.sizes)
        given: dict[str, Any] = {}
        for word in self.sizes.replace(",", " ").split():
            name, equals, value = word.partition("=")
            if not equals or not value.isdigit():
                raise UsageError(f"{word!r} is no size; write NAME=NUMBER, as in {self._default_sizes()}")
            given[name] = int(value)
        return registry.get(self.program, **given)

    # -------------------------------------------------------------------------------------------------------- commands
    def do_search(self) -> None:
        """Search, beside the notebook."""
        self.search()

    def do_compile(self) -> None:
        """Compile the chosen candidate."""
        self._begin("compile", self._compile)

    def do_profile(self) -> None:
        """Time the candidates on the GPU, or replay what was measured."""
        self._begin("profile", self._profile)

    def do_cancel(self) -> None:
        """Stop."""
        self.cancel()

    def do_export(self) -> None:
        """Write the chosen candidate into `folder`."""
        self._begin("export", self._export)

    def do_choose(self, place: int) -> None:
        """Choose a candidate."""
        self.chosen = min(max(place, 0), max(self.candidates - 1, 0))

    def do_move(self, step: int) -> None:
        """Choose a neighbour."""
        self.do_choose(self.chosen + step)

    def search(self) -> None:
        """Start a run of `wb.superoptimize` for what is asked. Raises: UsageError for a program that cannot be made."""
        program = self.asked()
        self._stages, self.result = [], None
        self.candidates = self.chosen = 0
        self._begin("search", lambda: self._search(program))

    def cancel(self) -> None:
        """Stop what runs; candidates that are there stay, and a later search goes on where this one stopped.

        Returns within half a second; a step that cannot be interrupted ends first, and `running` says until when.
        """
        if not self._worker.is_running:
            return
        if not self._worker.stop(0.4):
            self._note = "stopping after this step"
        self._draw_run(running=self._worker.is_running)

    def wait(self, timeout_s: float | None = None) -> Result | None:
        """Return the result once nothing runs any more; None if there is none."""
        self._worker.wait(timeout_s)
        return self.result

    def export(self, folder: str | Path | None = None) -> list[Path]:
        """Write the chosen candidate: kernels, launchers, description. Raises: UsageError without one; OSError."""
        return self.candidate.export(Path(folder or self.folder))

    @property
    def candidate(self) -> Candidate:
        """The chosen candidate. Raises: UsageError when there is none yet."""
        if self.result is None or not self.result.candidates:
            raise UsageError("there is no candidate yet; search first")
        return self.result.candidates[min(self.chosen, len(self.result.candidates) - 1)]

    # ------------------------------------------------------------------------------------------------------- the work
    def _begin(self, name: str, work: Any) -> None:
        if self._worker.is_running:
            raise UsageError("something runs already; stop it first")
        if name != "search":
            _ = self.candidate
        self._note = ""
        self.running, self.stage, self.done, self.total = True, name, 0, 0

        def guarded() -> None:
            try:
                work()
            except KeyboardInterrupt:
                again = ": search again to go on where it stopped" if name == "search" else "; the candidates are kept"
                self._note = f"{name} stopped{again}"
                self._draw_run(running=False)
            except (WorkbenchError, OSError) as error:
                self._note = " ".join(str(error).split())
                self._draw_run(running=False)
            else:
                with self._guard:
                    self.running = False
                self.draw()
            finally:
                self.running = False

        self._worker.start(guarded)
        if name == "search":
            self.draw()
        else:
            self._draw_run(running=True)

    def _search(self, program: KernelGraph) -> None:
        space = None if self.max_block_ops == Space().max_block_ops else Space(max_block_ops=self.max_block_ops)
        options = Options(keep=self.keep, seed=self.options.seed, error=self.options.error)
        found = superoptimize(
            program, self.device, budget=float(self.budget), options=options, space=space, fresh=self.fresh,
            progress=self._progress,
        )  # fmt: skip
        with self._guard:
            self.result = found
            self.candidates, self.chosen = len(found.candidates), 0
        self._note = (
            f"{counted(found.structures, 'structure')} from {counted(found.states, 'state')} in {found.seconds:.1f} s"
        )
        self._note += ", from an earlier run" if found.cached else ", stopped early" if found.interrupted else ""

    def _progress(self, stage: Stage) -> None:
        if stage.name not in self._stages:
            self._stages.append(stage.name)
        now = time.monotonic()
        if now - self._drawn < DRAW_S and stage.name == self.stage and stage.done < stage.total:
            return
        self._drawn = now
        with self._guard:
            self.stage, self.done, self.total = stage.name, stage.done, stage.total
        self.put(
            {"progress": progress_html(stage, self._stages, self._gpu_note())},
            status=f"{stage.name} {stage.done:,} of {stage.total:,}",
        )

    def _compile(self) -> None:
        one = self.candidate
        target = architecture(self.device)
        program = emit_program(one.graph, schedules=for_architecture(one.graph, one.schedules, target))
        rows = []
        try:
            load_nvrtc()
            compiled = compile_program(program, one.graph, target.name).compiled
        except KernelCompileError as error:
            compiled = {}
            self._note = f"not compiled: {error}"
        for kernel in program.kernels:
            made = compiled.get(kernel.name)
            usage = made.usage(kernel.launch.kernel) if made is not None else None
            shared = kernel.launch.shared_bytes + (usage.shared_bytes if usage else 0)
            told: tuple[Cell | str, ...] = ("–", "–", "–")
            if usage is not None and made is not None:
                told = (number(usage.registers), number(usage.spill_bytes), f"{made.compile_s:.2f} s")
            rows.append(Row((kernel.name, number(kernel.launch.threads), number(shared), *told)))
        head = ("kernel", Cell("threads", is_number=True), Cell("shared bytes", is_number=True),
                Cell("registers", is_number=True), Cell("bytes spilled", is_number=True), "compiled in")  # fmt: skip
        calls = [f"library product {call.result} = {call.left} @ {call.right}" for call in program.library_calls]
        self._kernels[one.graph.hash] = table(head, rows) + "".join(paragraph(text) for text in calls)
        if compiled:
            self._note = f"compiled for {target.name}: {counted(len(compiled), 'kernel')}"

    def _profile(self) -> None:
        assert self.result is not None
        if not self.has_gpu:
            self._note = "nothing is timed without the device: times of records are replayed where there are any"
            return
        found, refused = measure_candidates(
            self.result.program, list(self.result.candidates), hardware(self.device), seed=self.options.seed,
            progress=self._progress, is_over=self._worker.stopping.is_set,
        )  # fmt: skip
        if self._worker.stopping.is_set():
            raise KeyboardInterrupt
        ranked = tuple(sorted(found, key=lambda one: (one.measured is None, one.time_us)))
        timed = sum(one.measured is not None for one in ranked)
        with self._guard:
            self.result = replace(
                self.result, candidates=ranked, refused=(*self.result.refused, *refused), measured=timed > 0
            )
            self.candidates, self.chosen = len(ranked), 0
        self._note = f"{counted(timed, 'candidate')} timed" + (
            f"; {len(refused)} left out, with the reason below" if refused else ""
        )

    def _export(self) -> None:
        files = self.export()
        names = ", ".join(path.name for path in files)
        self._note = f"{counted(len(files), 'file')} written to {Path(self.folder).resolve()}: {names}"

    # --------------------------------------------------------------------------------------------------------- drawing
    def _gpu_note(self) -> str:
        if self.has_gpu:
            return ""
        return f"there is no {self.device} here: times are modelled, and measured ones are replayed from records"

    def draw_all(self) -> None:
        """Draw everything."""
        result = self.result
        panels = {"request": self._request(), "progress": self._run_html()}
        if result is None or not result.candidates:
            panels |= dict.fromkeys(("candidates", "times", "roofline", "graph", "kernels"), "")
            panels["refused"] = "" if result is None else self._refused(result)
        else:
            points = [modelled_point(f"candidate {n}", one.cost, one.measured.cold_us if one.measured else None)
                      for n, one in enumerate(result.candidates[: self.limit])]  # fmt: skip
            panels |= {
                "times": self._times(result),
                "roofline": small_roofline_svg([p for p in points if p], hardware(self.device)),
                "refused": self._refused(result),
            }
        self.put(panels, status=self._status(), notice=self._gpu_note())
        self._draw_chosen()
        self._draw_controls()

    def _draw_run(self, *, running: bool) -> None:
        """Draw how it stands, and nothing that takes long."""
        with self._guard:
            self.running = running
            self.put({"progress": self._run_html()}, status=self._status())
            self._draw_controls()

    def _status(self) -> str:
        result = self.result
        if result is None or not result.candidates or self.running:
            return f"{self.stage}: at work" if self.running else self._note or "ready"
        how = "measured" if result.best.measured else "modelled"
        return f"best {result.best.time_us:.2f} us ({how}); {counted(len(result.candidates), 'candidate')}"

    def _run_html(self) -> str:
        if self.running:
            return progress_html(Stage(self.stage, self.done, self.total), self._stages, self._note)
        told = "".join(f'<span class="wb-tag">{words(name)} ✓</span>' for name in self._stages)
        return paragraph(self._note or "choose a program and its sizes, then search") + (
            f"<p>{told}</p>" if told else ""
        )

    def _request(self) -> str:
        try:
            program = self.asked()
        except (WorkbenchError, TypeError, ValueError) as error:
            return f'<p class="wb-drops">{words(str(error))}</p>'
        return pre(program.describe())

    def _refused(self, result: Result) -> str:
        return refused_html(result.refused, result.refused_counts, limit=200) if result.refused else ""

    def _times(self, result: Result) -> str:
        times = []
        for place, one in enumerate(result.candidates[:8]):
            how = "measured" if one.measured else "modelled"
            times.append(Timed(f"{place}: {one.origin}", one.time_us, how, one.origin.startswith("search")))
        written = self._as_written(result)
        if written is not None and all(one.origin != AS_WRITTEN for one in result.candidates[:8]):
            times.append(Timed(AS_WRITTEN, written, "modelled", False))
        times.append(Timed("lower bound", result.lower_bound.total_us, "bound", False))
        replayed = self._replayed(result)
        note = ""
        if not result.measured:
            note = (
                "no record ships for this program at these sizes"
                if not replayed
                else "replayed times were measured on the device named, L2 cold"
            )
        return times_svg([*times, *replayed], written) + (paragraph(note, "wb-quiet") if note else "")

    def _as_written(self, result: Result) -> float | None:
        """Return microseconds of the program as written: measured where it was, else modelled; None without a cost."""
        for one in result.candidates:
            if one.origin == AS_WRITTEN:
                return one.time_us
        try:
            return estimate(result.program, hardware=hardware(self.device)).total_us
        except WorkbenchError:
            return None

    def _replayed(self, result: Result) -> list[Timed]:
        """Return measured times of records for this program: ours and the best peers'."""
        found = []
        best = [
            one.time_us for candidate in result.candidates[:3] for one in shipped_times(candidate.graph, self.device)
        ]
        if best and not result.measured:
            found.append(Timed("ours, a record", min(best), "replayed", True))
        try:
            rows = shipped_measurements(self.device)
        except (WorkbenchError, OSError):
            return found
        shapes = [list(tensor.shape) for tensor in result.program.inputs]
        for row in rows:
            if row["program"] != self.program or self.graph is not None:
                continue
            if [list(t.shape) for t in registry.get(row["program"], **row["parameters"]).inputs] != shapes:
                continue
            if row["ours_us"] is not None and not result.measured:
                found = [Timed("ours, a record", row["ours_us"], "replayed", True)]
            found += [
                Timed(name, us, "replayed", False) for name, us in sorted(row["peers"].items(), key=lambda i: i[1])[:5]
            ]
        return found

    def _draw_chosen(self) -> None:
        if self.result is None or not self.result.candidates:
            return
        one = self.candidate
        theme = cast(Theme, self.theme)
        cost = parts_svg(one.cost)
        source = one.graph.graph_defined
        try:
            text = one.source() if source else ""
            body = text[text.find("using namespace wb;") + 19 :].strip() if "using namespace wb;" in text else text
        except WorkbenchError as error:
            body = str(error)
        code = f"<details><summary>CUDA source without the header</summary>{pre(body)}</details>" if body else ""
        self.put(
            {
                "candidates": candidates_html(self.result, self.chosen, limit=self.limit),
                "graph": verdict_html(one.certificate) + graph_html(one.graph, theme=theme, max_nodes=60),
                "kernels": self._kernels.get(one.graph.hash, paragraph("not compiled yet", "wb-quiet")) + cost + code,
            }
        )

    def _draw_controls(self) -> None:
        programs = [[name, name] for name in registry.names()] + [[TYPED, TYPED]]
        idle, none = not self.running, not self.candidates
        made: list[Spec] = [field("select", "program", "program", options=programs)]
        if self.program == TYPED:
            made.append(field("text", "formula", "formula"))
        made += [
            field("text", "sizes", "shapes" if self.program == TYPED else "sizes"),
            field("select", "device", "device", options=[[name, name] for name in hardware_names()]),
            field("number", "budget", "seconds at most", min=1, max=3600),
            field("number", "keep", "candidates", min=1, max=32),
            field("number", "max_block_ops", "block operators", min=1, max=16),
            field("check", "fresh", "ignore earlier answers"),
            next_line(),
            button("search", "search", primary=True, disabled=not idle),
            button("compile", "compile", disabled=not idle or none),
            button("profile", "profile" if self.has_gpu else "replay times", disabled=not idle or none),
            button("cancel", "■ stop", disabled=idle),
            field("text", "folder", "folder"),
            button("export", "export", disabled=not idle or none),
        ]
        self.controls = made

    def describe(self) -> str:
        """Return the state, and the answer where there is one, as plain text."""
        lines = [f"Launchpad: {self.status}"]
        if self.result is not None:
            lines.append(self.result.describe())
        return "\n".join(lines)

    def free(self) -> None:
        """Stop the thread."""
        self._worker.stop()
