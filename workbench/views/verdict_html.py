"""A verdict as an HTML fragment that a teacher can show: the answer with its number, and what it rests on.

Invariant: no script, every text escaped, the same words as the text form.
"""

from __future__ import annotations

from html import escape

from workbench.units import counted
from workbench.verify.verdict import Verdict
from workbench.views.palette import VERDICT_COLOURS

_CELL = '<td style="text-align:left;vertical-align:top">'


def verdict_html(verdict: Verdict) -> str:
    """Return the verdict as one HTML element."""
    colour = VERDICT_COLOURS[verdict.kind]
    badge = f'<span style="border:2px solid {colour};border-radius:6px;padding:1px 8px;font-weight:bold">{verdict.kind}</span>'
    number = ""
    if verdict.kind == "equal":
        number = "proved" if verdict.proved else f"error probability at most {verdict.error_bound:.3g}"
    rows = [("because", verdict.reason)]
    if verdict.witness:
        rows.append(("witness", verdict.witness.describe()))
    for instance in verdict.shapes_tested:
        shapes = ", ".join("×".join(map(str, shape)) or "scalar" for shape in instance.shapes)
        how = "proved" if instance.exact else counted(instance.tests, "random test")
        cells = f", {instance.cells} cells of piecewise operators" if instance.cells else ""
        rows.append(("reduced shapes" if instance.reduced else "true shapes", f"{shapes}: {how}{cells}"))
    if verdict.field_pair:
        rows.append(("fields", verdict.field_pair))
    rows += [("bound: " + name, f"{value:.3g}") for name, value in verdict.bounds.items()]
    rows += [("assumes", assumption) for assumption in verdict.assumptions]
    if verdict.opaque:
        rows.append(("random functions", ", ".join(verdict.opaque)))
    rows.append(("time", f"{verdict.seconds:.2f} s, {counted(verdict.tests, 'test')} in all"))
    body = "".join(f"<tr>{_CELL}{escape(name)}</td>{_CELL}{escape(text)}</td></tr>" for name, text in rows)
    return f'<div class="workbench-verdict"><p>{badge} {escape(number)}</p><table><tbody>{body}</tbody></table></div>\n'
