"""Which classes are shown how. Invariant: only the doors call this, once, before the first rich display."""

from __future__ import annotations

from workbench.display import register_formatter
from workbench.pipeline.candidate import Candidate
from workbench.pipeline.result import Result
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.verify.verdict import Verdict
from workbench.views.html import graph_html
from workbench.views.result_html import candidate_html, result_html
from workbench.views.svg import graph_svg
from workbench.views.verdict_html import verdict_html


def register_views() -> None:
    """Let kernel graphs show themselves as a picture, with tables where HTML is shown; verdicts and answers as HTML."""
    register_formatter("image/svg+xml", KernelGraph, _svg)
    register_formatter("text/html", KernelGraph, _html)
    register_formatter("text/html", Verdict, _verdict)
    register_formatter("text/html", Result, _result)
    register_formatter("text/html", Candidate, _candidate)


def _svg(graph: object) -> str:
    assert isinstance(graph, KernelGraph)
    return graph_svg(graph)


def _html(graph: object) -> str:
    assert isinstance(graph, KernelGraph)
    return graph_html(graph)


def _verdict(verdict: object) -> str:
    assert isinstance(verdict, Verdict)
    return verdict_html(verdict)


def _result(result: object) -> str:
    assert isinstance(result, Result)
    return result_html(result)


def _candidate(candidate: object) -> str:
    assert isinstance(candidate, Candidate)
    return candidate_html(candidate)
