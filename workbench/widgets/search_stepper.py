"""The stepper of a search: a live one or a record, event by event, with the reasons. `wb.widgets.SearchStepper`.

Invariant: `position` decides what is shown; everything on the page follows from it and from the settings. Searching and
playing happen in a thread, so the kernel stays free; stopping them keeps every event.
Long because stepping, playing, searching and restarting share the state of one run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import traitlets

from workbench.errors import UsageError, WorkbenchError
from workbench.search.pruners.names import DEFAULT, pruner_names
from workbench.search.pruners.rule import Pruner
from workbench.search.replay import Replay
from workbench.search.searching import default_engine
from workbench.search.space import Space
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.units import counted
from workbench.views.html import graph_html
from workbench.views.markup import paragraph
from workbench.views.prefix_graph import prefix_svg
from workbench.views.search_event import EventView
from workbench.views.search_panels import counts_svg, event_html, parting, runs_html, tree_html, verdicts_html
from workbench.views.svg import Theme
from workbench.widgets.panel import Panel, Spec, button, expect, field, next_line, pane
from workbench.widgets.tape import Settings, Tape
from workbench.widgets.worker import Worker

REFRESH_S = 0.2
"""Seconds between two drawings while a search runs."""

PRUNERS = (*DEFAULT, *(name for name in pruner_names() if name not in (*DEFAULT, "none")))
"""What can be ticked: the usual ones first."""

_SHORTCUTS = {
    "ArrowRight": ["step", None, "step"],
    "ArrowLeft": ["back", None, "back"],
    " ": ["toggle", None, "play or pause"],
    "n": ["next_complete", None, "next complete graph"],
    "b": ["previous_complete", None, "previous complete graph"],
    "Home": ["jump", 0, "first event"],
    "End": ["last", None, "last event"],
    "c": ["continue_from", None, "continue from this prefix"],
    "k": ["keep_pruned", None, "keep this dropped one"],
    "Escape": ["cancel", None, "stop the search"],
}


class SearchStepper(Panel):
    """Steps through a search.

    Traits: position, length: which event, of how many so far; playing, running: whether events go by, whether it searches
    as fast as it can; speed: events a second; kind, prefix, value, rule: of the event shown; kept, dropped: counts up to
    it; pruners: names; max_block_ops: limit of a restart; finished; tree_limit: rows of the tree.
    """

    position = traitlets.Int(0).tag(sync=True)
    length = traitlets.Int(0).tag(sync=True)
    playing = traitlets.Bool(False).tag(sync=True)
    running = traitlets.Bool(False).tag(sync=True)
    speed = traitlets.Int(4, min=1, max=200).tag(sync=True)
    finished = traitlets.Bool(False).tag(sync=True)
    kind = traitlets.Unicode().tag(sync=True)
    prefix = traitlets.Unicode().tag(sync=True)
    value = traitlets.Unicode().tag(sync=True)
    rule = traitlets.Unicode().tag(sync=True)
    kept = traitlets.Int(0).tag(sync=True)
    dropped = traitlets.Dict().tag(sync=True)
    pruners = traitlets.Unicode().tag(sync=True)
    max_block_ops = traitlets.Int(4, min=1, max=16).tag(sync=True)
    tree_limit = traitlets.Int(400, min=10)
    max_events = traitlets.Int(200_000, min=1)

    layout_rows: Sequence[Sequence[Spec]] = (
        (
            pane("event", "event", grow=3, basis=380, height=420),
            pane("graph", "prefix as a graph", grow=2, basis=300, height=420),
        ),
        (
            pane("verdicts", "what every pruner says", grow=3, basis=380),
            pane("counts", "kept and dropped so far", basis=300),
        ),
        (
            pane("tree", "search tree so far", grow=2, basis=380, height=300),
            pane("runs", "runs side by side", grow=2, basis=380),
        ),
    )

    def __init__(
        self,
        program: KernelGraph | None = None,
        *,
        record: str | Path | Replay | None = None,
        space: Space | None = None,
        engine: str | None = None,
        pruners: Sequence[str | Pruner] | None = None,
        seed: int = 0,
        **values: object,
    ) -> None:
        """Open a record, or prepare a search of a program; nothing is searched yet.

        engine: "prefix" by default, since it says the most. Raises: UsageError; FormatError for what is no record.
        """
        if (program is None) == (record is None):
            raise UsageError("a stepper shows one search: give a program, or record=")
        self._worker = Worker("stepper")
        self._changed = threading.Condition()
        self._wanted = 0
        self._aim: int | None = None
        if record is not None:
            tape = Tape.recorded(record)
        else:
            expect(program, KernelGraph, "the program")
            assert program is not None
            space = space or Space(max_block_ops=4)
            chosen = engine or ("prefix" if space.mapping == "axes" else default_engine(space, pruners))
            given = None if pruners is None else tuple(pruners)
            tape = Tape.live(Settings(program=program, space=space, engine=chosen, pruners=given, seed=seed))
        self.tapes = [tape]
        listed = DEFAULT if tape.settings.pruners is None else [getattr(p, "name", p) for p in tape.settings.pruners]
        super().__init__(
            title=f"search of {tape.settings.program.name or 'a program'}", shortcuts=_SHORTCUTS,
            pruners=", ".join(map(str, listed)), max_block_ops=tape.settings.space.max_block_ops, **values,
        )  # fmt: skip
        self.observe(self._moved, ["position", "tree_limit", "theme"])
        self.observe(self._played, ["playing", "running"])
        self.observe(self._draw_controls, ["position", "playing", "running", "length", "finished"])
        self._open(tape)

    # ------------------------------------------------------------------------------------------------------------ runs
    @property
    def tape(self) -> Tape:
        """The run that is shown."""
        return self.tapes[-1]

    def _open(self, tape: Tape) -> None:
        with self._guard:
            self.playing = self.running = False
            self.length, self.finished = len(tape.events), tape.is_finished
            self._wanted, self._aim = 0, None
        if tape.is_live:
            self._search_to(1)
        self._draw_controls()
        if self.position:
            self.position = 0
        else:
            self.draw()
        if not tape.is_live:
            self._start()

    def restart(self, **changes: Any) -> None:
        """Search anew with other settings; the run before stays beside it for comparison.

        changes: `pruners`, `space`, `max_block_ops`, `start`, `keep`, `seed`. Raises: UsageError for settings that do not
        fit together.
        """
        settings = self.tape.settings
        space = changes.pop("space", settings.space)
        limit = changes.pop("max_block_ops", None)
        if limit is not None:
            space = Space.from_json({**space.to_json(), "max_block_ops": limit})
        chosen = changes.pop("pruners", settings.pruners)
        values: dict[str, Any] = {"engine": settings.engine, "seed": settings.seed, "start": "", "keep": (), **changes}
        if values["start"] or values["keep"] or chosen != settings.pruners:
            values["engine"] = "prefix"
        made = Settings(
            program=settings.program, space=space, pruners=None if chosen is None else tuple(chosen), **values
        )
        tape = Tape.live(made)
        self._halt()
        self.tape.read()
        self.tapes = [*self.tapes[-1:], tape]
        names = DEFAULT if made.pruners is None else [getattr(p, "name", p) for p in made.pruners]
        with self._guard:
            self.pruners = ", ".join(map(str, names))
            self.max_block_ops = space.max_block_ops
        self._open(tape)

    # -------------------------------------------------------------------------------------------------------- commands
    def do_step(self, count: int = 1) -> None:
        """Go forward."""
        self.step(count)

    def do_back(self, count: int = 1) -> None:
        """Go back."""
        self.back(count)

    def do_jump(self, number: int) -> None:
        """Show an event."""
        self.jump(number)

    def do_toggle(self) -> None:
        """Play or pause."""
        self.playing = not (self.playing or self.running)

    def do_run(self) -> None:
        """Search as fast as possible."""
        self.running = True

    def do_cancel(self) -> None:
        """Stop."""
        self.cancel()

    def do_last(self) -> None:
        """Show the last event that is there."""
        self.jump(self.length - 1)

    def do_next_complete(self) -> None:
        """Show the next complete graph."""
        self.next_complete()

    def do_previous_complete(self) -> None:
        """Show the complete graph before."""
        self.previous_complete()

    def do_continue_from(self) -> None:
        """Search from the prefix that is shown."""
        self.continue_from()

    def do_keep_pruned(self) -> None:
        """Keep the dropped prefix that is shown."""
        self.keep_pruned()

    def do_restart(self) -> None:
        """Search with the pruners and the limit of the controls."""
        names = [name.strip() for name in self.pruners.split(",") if name.strip()]
        self.restart(pruners=names or ["none"], max_block_ops=self.max_block_ops)

    # --------------------------------------------------------------------------------------------------------- methods
    def step(self, count: int = 1) -> None:
        """Go forward by a number of events; a live search searches for them."""
        self.jump(self.position + count)

    def back(self, count: int = 1) -> None:
        """Go back by a number of events."""
        self.jump(self.position - count)

    def jump(self, number: int) -> None:
        """Show an event by its number; beyond the end the last one."""
        number = max(0, number)
        self._aim = None
        if number >= len(self.tape.events) and not self.tape.is_finished:
            self._aim = number
            self._search_to(number + 1)
        self._arrive(self.tape)
        if self._aim is None:
            self.position = min(number, max(len(self.tape.events) - 1, 0))

    def _arrive(self, tape: Tape) -> None:
        """Go where a jump led to, once the search is there."""
        with self._guard:
            aim = self._aim
            if aim is None or tape is not self.tape or (aim >= len(tape.events) and not tape.is_finished):
                return
            self._aim = None
            self.length, self.finished = len(tape.events), tape.is_finished
            self.position = min(aim, max(len(tape.events) - 1, 0))

    def play(self, speed: int | None = None) -> None:
        """Let events go by, `speed` a second."""
        if speed is not None:
            self.speed = speed
        self.playing = True

    def pause(self) -> None:
        """Stop events going by."""
        self.playing = self.running = False

    def run(self, timeout_s: float | None = None) -> bool:
        """Search to the end, showing how it goes; return whether it ended within the time (0: do not wait)."""
        self.running = True
        if timeout_s == 0:
            return self.finished
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while self.running and self._worker.is_running and (end is None or time.monotonic() < end):
            time.sleep(0.02)
        return self.finished

    def cancel(self) -> None:
        """Stop searching and playing, within half a second; every event that is there stays. A later step goes on."""
        searched, was = self.running, self.running or self.playing
        with self._guard:
            self.playing = self.running = False
        self._halt()
        self.length, self.finished = len(self.tape.events), self.tape.is_finished
        if searched and self.length:
            self.position = self.length - 1
        if was and not self.finished:
            self.status = f"stopped; {counted(self.length, 'event')} {'is' if self.length == 1 else 'are'} kept"
        self._draw_controls()

    def next_complete(self) -> None:
        """Show the next complete graph, if one is there already."""
        found = next((n for n in self.tape.numbers("Completed") if n > self.position), None)
        self._go(found, "no complete graph after this event" + ("" if self.finished else " yet; run the search"))

    def previous_complete(self) -> None:
        """Show the complete graph before this event."""
        found = [n for n in self.tape.numbers("Completed") if n < self.position]
        self._go(found[-1] if found else None, "no complete graph before this event")

    def _go(self, number: int | None, otherwise: str) -> None:
        if number is None:
            self.status = otherwise
        else:
            self.position = number

    def continue_from(self, prefix: str | None = None) -> None:
        """Search from a prefix alone, by default the one shown. Raises: UsageError where there is none."""
        chosen = self.prefix if prefix is None else prefix
        if not chosen:
            raise UsageError("this event is about no prefix; step to one, or give its name")
        self.restart(start=chosen)

    def keep_pruned(self, prefix: str | None = None) -> None:
        """Search on from a dropped prefix as if no rule had dropped it. Raises: UsageError for one that is not dropped."""
        chosen = self.prefix if prefix is None else prefix
        if prefix is None and not self.rule:
            raise UsageError("the event shown is no dropped prefix; step to one, or give its name")
        self.restart(start=chosen.rpartition("/")[0], keep=(chosen,))

    # ---------------------------------------------------------------------------------------------------------- thread
    def _played(self, change: object) -> None:
        if self.playing or self.running:
            self._start()

    def _halt(self) -> None:
        """Stop the thread; one that is inside a long call is left behind, with the search that it is in."""
        if not self._worker.stop(0.4, grace_s=0.15):
            self._worker.leave()
            self.tape.leave()

    def _start(self) -> None:
        if not self._worker.is_running:
            self._worker.start(self._work)

    def _search_to(self, length: int) -> None:
        """Search until there are so many events; waits a moment, the rest comes while the notebook goes on."""
        self._wanted = length
        end = time.monotonic() + REFRESH_S
        while len(self.tape.events) < length and not self.tape.is_finished and time.monotonic() < end:
            self._start()
            time.sleep(0.001)
        self.length, self.finished = len(self.tape.events), self.tape.is_finished

    def _work(self) -> None:
        """In the thread: search, play, and let the tree read."""
        tape, stopping = self.tape, self._worker.stopping
        drawn = time.monotonic()
        while not stopping.is_set() and not self.is_closed:
            full = len(tape.events) >= self.max_events
            if not tape.is_finished and not full and (self.running or len(tape.events) < self._wanted):
                tape.grow()
                if stopping.is_set():
                    break
                self._arrive(tape)
                if time.monotonic() - drawn < REFRESH_S and not tape.is_finished:
                    continue
                tape.read()
                drawn = time.monotonic()
                self._show_end(tape)
            elif self.playing:
                time.sleep(1 / self.speed)
                if self.playing:
                    self._advance(tape)
            elif tape.tree.read < len(tape.events):
                tape.read(stop=stopping.is_set)
                self.draw()
            else:
                if self.running:
                    self._show_end(tape)
                    with self._guard:
                        self.running = False
                    if full and not tape.is_finished:
                        self.status = f"paused at {len(tape.events):,} events; raise max_events to go on"
                break

    def _show_end(self, tape: Tape) -> None:
        with self._guard:
            if tape is not self.tape or self._worker.stopping.is_set():
                return
            self.length, self.finished = len(tape.events), tape.is_finished
            if self.running and self.length:
                self.position = self.length - 1
            else:
                self.draw()

    def _advance(self, tape: Tape) -> None:
        if self.position + 1 >= len(tape.events) and not tape.grow():
            with self._guard:
                self.playing, self.finished = False, tape.is_finished
            return
        with self._guard:
            self.length = len(tape.events)
            self.position += 1

    # --------------------------------------------------------------------------------------------------------- drawing
    def _moved(self, change: object) -> None:
        self.draw()

    def draw_all(self) -> None:
        """Draw the event at `position`."""
        tape, at = self.tape, self.position
        if not 0 <= at < len(tape.events):
            self.put({"event": paragraph("nothing was searched yet")}, status="0 events")
            return
        if tape.tree.read <= at <= tape.tree.read + 5000 and not self._worker.is_running:
            tape.read(at + 1)
        view = tape.view(at)
        kept, dropped = tape.tree.counts(at + 1)
        label_of = str if tape.desk is None else tape.desk.label
        tree, notice = tree_html(
            tape.tree, at, limit=self.tree_limit, total=len(tape.events), label_of=label_of,
            extents=tape.desk.extents if tape.desk is not None else None,
        )  # fmt: skip
        more = "" if tape.is_finished else "+"
        panels = {
            "event": event_html(view, tape.desk.axes if tape.desk is not None else ""),
            "graph": self._picture(view),
            "verdicts": verdicts_html(view),
            "counts": counts_svg(kept, dropped),
            "tree": tree,
            "runs": self._runs(),
        }
        self.put(
            panels, kind=view.kind, prefix=view.prefix, value=view.expression or view.text, rule=view.rule, kept=kept,
            dropped=dropped, notice="; ".join(filter(None, (notice, tape.message))),
            status=f"event {at + 1:,} of {len(tape.events):,}{more} · {view.kind}",
        )  # fmt: skip

    def _picture(self, view: EventView) -> str:
        theme = self.theme
        if view.graph is not None:
            return graph_html(view.graph, max_nodes=60, theme=cast(Theme, theme))
        tape = self.tape
        if not view.prefix:
            return paragraph("this event is about no prefix", "wb-quiet")
        if tape.desk is None:
            return paragraph(f"no picture: {tape.no_desk}", "wb-quiet")
        try:
            return prefix_svg(tape.desk.graph(view.prefix), dropped_by=view.rule)
        except WorkbenchError as error:
            return paragraph(f"no picture: {error}", "wb-quiet")

    def _runs(self) -> str:
        if len(self.tapes) < 2:
            return ""
        first, second = self.tapes
        return runs_html(
            [first.summary("the run before"), second.summary("this run")], parting(first.tree, second.tree)
        )

    def _draw_controls(self, change: object = None) -> None:
        busy = self.playing or self.running
        live = not self.tape.is_finished
        self.controls = [
            button("back", "◀ back", disabled=not self.position and not busy),
            button("toggle", "pause" if busy else "▶ play", pressed=busy, primary=True),
            button("step", "step ▶"),
            button("previous_complete", "◆ ◀", hint="the complete graph before"),
            button("next_complete", "▶ ◆", hint="the next complete graph"),
            button("run", "▶▶ search all", hint="as fast as it can", disabled=not live or self.running),
            button("cancel", "■ stop", disabled=not busy),
            field("range", "position", "event", min=0, max=max(self.length - 1, 0), shown=f"{self.position + 1:,}"),
            field("range", "speed", "events a second", min=1, max=200),
            next_line(),
            button("continue_from", "continue from this prefix"),
            button("keep_pruned", "keep this dropped one"),
            field("number", "max_block_ops", "block operators", min=1, max=16),
            button("restart", "search anew, compare", hint="with the pruners and the limit chosen here"),
            next_line(),
            field(
                "choices",
                "pruners",
                "pruners",
                options=[[name, name] for name in PRUNERS],
                hint="none ticked: no pruner",
            ),
        ]

    def describe(self) -> str:
        """Return what is shown as plain text."""
        return f"SearchStepper: {self.title}. {self.status}: {self.value}"

    def settle(self, timeout_s: float) -> None:
        """Wait until the tree has read the events that there are, unless it searches or plays."""
        if not self.playing and not self.running:
            self._worker.wait(timeout_s)

    def free(self) -> None:
        """Stop the thread."""
        self._worker.stop()
        for tape in self.tapes:
            close = getattr(tape.more, "close", None)
            if close is not None and not self._worker.is_running:
                close()
