"""What all widgets share: a static twin, text, one script without the net, closing, a worker that stops."""

from __future__ import annotations

import gc
import re
import threading
import time
import weakref
from collections.abc import Callable
from html.parser import HTMLParser

import pytest

import workbench as wb
from workbench.views.palette import contrast
from workbench.views.panel_style import panel_colours
from workbench.widgets import __all__ as names
from workbench.widgets.panel import STYLES, Panel
from workbench.widgets.worker import Worker

PROGRAM = wb.programs.get("rms_norm_linear", batch=4, hidden=24, out=10)
GRAPH = wb.programs.known_good("rms_norm_linear")[0]
MAKERS: dict[str, Callable[[], Panel]] = {
    "GraphExplorer": lambda: wb.widgets.GraphExplorer(GRAPH),
    "Launchpad": lambda: wb.widgets.Launchpad("lora"),
    "ScheduleExplorer": lambda: wb.widgets.ScheduleExplorer(GRAPH),
    "SearchStepper": lambda: wb.widgets.SearchStepper(PROGRAM),
    "VerifierView": lambda: wb.widgets.VerifierView(PROGRAM, PROGRAM),
}


class _Balanced(HTMLParser):
    """Checks that every element is closed in its turn."""

    void = frozenset({"br", "input", "meta", "col", "circle", "rect", "path", "line", "polygon", "polyline"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.void:
            assert self.open, f"</{tag}> closes nothing"
            assert self.open.pop() == tag


def test_every_widget_is_tried() -> None:
    assert sorted(MAKERS) == sorted(names)


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_static_twin_and_text(name: str) -> None:
    widget = MAKERS[name]()
    try:
        end = time.monotonic() + 20
        while len(widget.static_html()) - len(STYLES) < 700 and time.monotonic() < end:
            time.sleep(0.05)
        bundle, _ = widget._repr_mimebundle_()
        assert {"text/plain", "text/html", "application/vnd.jupyter.widget-view+json"} <= set(bundle)
        html = bundle["text/html"]
        parser = _Balanced()
        parser.feed(html)
        assert parser.open == []
        assert "<script" not in html
        assert not re.findall(r"""(?:src|href)\s*=\s*["']?https?:""", html)
        assert name in bundle["text/plain"]
        assert repr(widget).startswith("<")
        for html_of_panel in widget.panels.values():
            assert html_of_panel == "" or html_of_panel.startswith("<")
    finally:
        widget.close()
    assert widget.comm is None
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("workbench") and thread.is_alive()]


class Kept:
    """What an observer of a user's own holds on to."""

    def __call__(self, change: object) -> None:
        """Hear of a change."""


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_closing_frees_the_widget_its_observers_and_what_they_hold(name: str) -> None:
    widget = MAKERS[name]()
    observer = Kept()
    widget.observe(observer, "status")
    worker: Worker = getattr(widget, "_worker")  # noqa: B009  # every widget has one; what they share has none
    dead: list[Callable[[], object]] = [weakref.ref(widget), weakref.ref(observer), weakref.ref(worker)]
    del observer, worker
    gc.collect()
    assert all(ref() is not None for ref in dead)
    widget.close()
    widget.close()
    assert not widget._trait_notifiers
    del widget
    gc.collect()
    assert [ref() for ref in dead] == [None] * len(dead)


def test_work_that_does_not_stop_is_left_behind_and_stops_by_itself() -> None:
    worker = Worker("test")
    inside, ended, second = threading.Event(), threading.Event(), threading.Event()

    def stuck() -> None:
        stopping = worker.stopping
        try:
            inside.set()
            time.sleep(0.8)  # one call: it hears of nothing before it returns
            time.sleep(0)
        finally:
            assert stopping.is_set()
            assert worker.stopping is stopping  # its own, not that of the work after it
            ended.set()

    worker.start(stuck)
    assert inside.wait(5)
    assert not worker.stop(0.1)
    worker.leave()
    assert not worker.is_running
    worker.start(second.set)
    assert second.wait(5)
    assert not worker.stopping.is_set()
    assert ended.wait(5)
    assert worker.error is None


def test_script_and_styles_fetch_nothing() -> None:
    for text in (str(Panel._esm), STYLES):
        assert "import(" not in text
        assert "@import" not in text
        assert not re.findall(r"https?://(?!www\.w3\.org)", text)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_can_be_read(theme: str) -> None:
    colours = panel_colours(theme)
    for ground in ("ground", "raised", "hot", "chosen", "match", "tensor", "block", "differs"):
        assert contrast(colours["ink"], colours[ground]) >= 4.5, ground
    for ground in ("hot", "chosen", "match"):
        assert contrast(colours["quiet"], colours[ground]) >= 4.5, ground
    for ink in ("quiet", "good", "bad"):
        assert contrast(colours[ink], colours["raised"]) >= 4.5, ink
    assert contrast(colours["on-accent"], colours["accent"]) >= 4.5


def test_unknown_commands_are_said() -> None:
    widget = wb.widgets.GraphExplorer(GRAPH)
    widget.command = {"do": "close_all", "n": 1}
    assert widget.opened == []
    widget.command = {"do": "__init__", "n": 2}
    assert "unknown command" in widget.status
    widget.close()


def test_a_worker_stops_inside_its_work() -> None:
    worker = Worker("test")
    cleaned = threading.Event()

    def busy() -> None:
        try:
            while True:
                sum(range(100))
        finally:
            cleaned.set()

    def fails() -> None:
        raise ZeroDivisionError

    worker.start(busy)
    time.sleep(0.05)
    start = time.monotonic()
    worker.stop(2.0)
    assert time.monotonic() - start < 1.0
    assert not worker.is_running
    assert cleaned.is_set()
    assert worker.error is None
    worker.start(fails)
    assert worker.wait(5)
    assert isinstance(worker.error, ZeroDivisionError)
