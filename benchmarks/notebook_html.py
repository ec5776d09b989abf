"""Executed notebooks as HTML pages that need nothing else: `write_html`, and `write_index` for the page that lists them.

Invariant: an opened page sends no request. Formulas become MathML, which browsers set by themselves; nbconvert's loaders of
MathJax, RequireJS, Mermaid and the widget manager are left out, and of a widget its static twin is shown.
"""

from __future__ import annotations

import copy
import html
import re
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, pass_context
from latex2mathml.converter import convert
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
WIDGET, TWIN = "application/vnd.jupyter.widget-view+json", 'class="wb-twin"'

PAGE = """{%- extends 'lab/index.html.j2' -%}
{%- block html_head_js -%}{%- endblock -%}
{%- block jupyter_widgets -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
{%- block html_head_css -%}
<style>
.jp-InputArea-editor .highlight pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.jp-OutputArea-output { overflow-x: auto; }
details.answer > summary { margin-left: 6em; cursor: pointer; }
math[display="block"] { margin: 0.6em 0; }
</style>
{%- endblock -%}
{%- block codecell -%}
{%- if cell.metadata.get('jupyter', {}).get('source_hidden') -%}
<details class="answer"><summary>answer</summary>{{ super() }}</details>
{%- else -%}{{ super() }}{%- endif -%}
{%- endblock codecell -%}
{%- block data_latex scoped -%}
<div class="jp-RenderedLatex jp-OutputArea-output {{ extra_class }}">{{ output.data['text/latex'] | mathml }}</div>
{%- endblock data_latex -%}"""
"""The page: nbconvert's, without what it loads from elsewhere; long lines of code go on below, answers are folded."""


def mathml(formula: str, *, display: bool = False) -> str:
    """Return a LaTeX formula, without its dollar signs, as MathML. Raises: ValueError for a command that is not known."""
    text = convert(formula, display="block" if display else "inline")
    if unknown := re.search(r"\\[A-Za-z]+", html.unescape(text)):
        raise ValueError(
            f"{unknown.group()} in the formula {formula!r} has no MathML; write it with commands of latex2mathml"
        )
    return text


def mathml_of_output(text: str) -> str:
    """Return MathML for a value's text/latex, in dollar signs or not."""
    stripped = text.strip()
    return mathml(stripped.strip("$"), display=stripped.startswith("$$"))


class _Renderer(IPythonRenderer):  # type: ignore[misc]  # nbconvert is half typed
    """Markdown with MathML instead of formulas that a script sets later, and links between pages."""

    def block_math(self, body: str) -> str:
        return mathml(body.strip(), display=True)

    def inline_math(self, body: str) -> str:
        return mathml(body.strip())

    def link(self, text: str, url: str, title: str | None = None) -> str:
        return str(super().link(text, re.sub(r"^(\d\d_\w+)\.ipynb(#.*)?$", r"\1.html\2", url), title))


class PageExporter(HTMLExporter):  # type: ignore[misc]
    """nbconvert's exporter of HTML for pages that are complete in themselves."""

    def __init__(self) -> None:
        super().__init__(
            extra_loaders=[DictLoader({"page.html.j2": PAGE})], template_file="page.html.j2", template_name="lab",
            embed_images=True,
        )  # fmt: skip
        self.register_filter("mathml", mathml_of_output)

    @pass_context
    def markdown2html(self, context: Any, source: str) -> str:
        """Return Markdown as HTML, formulas as MathML."""
        renderer = _Renderer(
            escape=False,
            attachments=context.get("cell", {}).get("attachments", {}),
            embed_images=self.embed_images,
            path=context.get("resources", {}).get("metadata", {}).get("path", ""),
            anchor_link_text=self.anchor_link_text,
            exclude_anchor_links=self.exclude_anchor_links,
            **self.lexer_options,
        )
        return str(MarkdownWithMath(renderer=renderer).render(source))


def without_widgets(notebook: NotebookNode) -> NotebookNode:
    """Return a copy in which widgets are what they leave behind without a kernel: their static twins.

    A widget of another package has no twin; of it the text stays.
    """
    plain = copy.deepcopy(notebook)
    plain.metadata.pop("widgets", None)
    for cell in plain.cells:
        outputs = cell.get("outputs", [])
        if any(TWIN in output.get("data", {}).get("text/html", "") for output in outputs):
            cell.outputs = [output for output in outputs if WIDGET not in output.get("data", {})]
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET, None)
    return plain


def write_html(notebook: NotebookNode, path: Path, *, folder: Path = NOTEBOOKS) -> None:
    """Write an executed notebook as one HTML file that loads nothing, answers folded.

    folder: where the notebook lies; pictures below it that its text shows are put into the page.
    """
    metadata = {"name": path.stem, "path": str(folder)}
    text, _ = PageExporter().from_notebook_node(without_widgets(notebook), resources={"metadata": metadata})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_index(titles: dict[str, str], folder: Path) -> Path:
    """Write index.html, which links the pages. titles: of the notebooks, by the name of the page."""
    items = "\n".join(
        f'<li><a href="{html.escape(name)}">{html.escape(title)}</a></li>' for name, title in titles.items()
    )
    page = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Notebooks</title></head>\n'
        f'<body style="font-family: sans-serif; margin: 2em auto; max-width: 45em"><h1>Notebooks</h1>\n'
        f'<ul style="line-height: 1.8">\n{items}\n</ul></body></html>\n'
    )
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "index.html"
    target.write_text(page, encoding="utf-8")
    return target
