"""The lecture's notation, as text and as LaTeX."""

from __future__ import annotations

import pytest

from workbench.domains import abstract_expr as expr
from workbench.domains.abstract_expr import Axis, Term
from workbench.domains.abstract_print import to_latex, to_text

X, Y, Z, G, W = (expr.symbol(name) for name in "XYZGW")
add, mul, div, sqrt, total = expr.add, expr.mul, expr.div, expr.sqrt, expr.sum_over
GOAL = total(8, div(mul(mul(G, W), X), sqrt(total(8, div(mul(X, X), expr.constant(8))))))
H = Axis("h")


def test_the_lectures_goal() -> None:
    """Section 4.4: E_O for H = 8."""
    assert to_text(GOAL) == "Σ_8[G·W·X / √(Σ_8[X·X / 8])]"
    assert to_latex(GOAL) == (
        r"\Sigma_{8}\!\left[\frac{G \cdot W \cdot X}{\sqrt{\Sigma_{8}\!\left[\frac{X \cdot X}{8}\right]}}\right]"
    )


@pytest.mark.parametrize(
    ("term", "text"),
    [
        (mul(add(X, Y), Z), "(X + Y)·Z"),
        (mul(Z, add(X, Y)), "Z·(X + Y)"),
        (add(X, add(Y, Z)), "X + (Y + Z)"),
        (add(add(X, Y), Z), "X + Y + Z"),
        (mul(X, mul(Y, Z)), "X·(Y·Z)"),
        (div(X, mul(Y, Z)), "X / (Y·Z)"),
        (div(div(X, Y), Z), "X / Y / Z"),
        (div(add(X, Y), Z), "(X + Y) / Z"),
        (div(X, div(Y, Z)), "X / (Y / Z)"),
        (mul(X, expr.constant("1/64")), "X·(1/64)"),
        (mul(X, expr.constant(-1)), "X·(-1)"),
        (add(X, expr.constant("1/1000000")), "X + (1/1000000)"),
        (expr.exp(add(X, Y)), "exp(X + Y)"),
        (expr.silu(X), "silu(X)"),
        (expr.maximum(X, Y), "max(X, Y)"),
        (expr.max_over(H, X), "max_h[X]"),
        (total(H.split()[1:], X), "Σ_{h.l,h.t}[X]"),
        (mul(expr.mark(add(X, Y)), Z), "⟦X + Y⟧·Z"),
        (expr.concat("c", {H: X, Axis("r"): Y}), "[h: X | r: Y]"),
        (expr.apply("clamp", X, expr.constant(-1), expr.constant(2)), "clamp(X, -1, 2)"),
    ],
)
def test_text(term: Term, text: str) -> None:
    assert to_text(term) == text


@pytest.mark.parametrize(
    ("term", "latex"),
    [
        (mul(expr.mark(add(X, Y)), Z), r"\boxed{X + Y} \cdot Z"),
        (mul(add(X, Y), Z), r"\left(X + Y\right) \cdot Z"),
        (mul(X, expr.constant("1/64")), r"X \cdot \tfrac{1}{64}"),
        (add(X, expr.constant("-1/2")), r"X + \left(-\tfrac{1}{2}\right)"),
        (total(H.split()[1:], X), r"\Sigma_{h_{\mathrm{loop}},h_{\mathrm{tile}}}\!\left[X\right]"),
        (expr.max_over(H, X), r"\max_{h}\!\left[X\right]"),
        (expr.exp(X), r"\exp\!\left(X\right)"),
        (expr.apply("gelu_tanh", X), r"\operatorname{gelu tanh}\!\left(X\right)"),
        (expr.symbol("W12"), "W_{12}"),
        (expr.symbol("gain_x"), r"\mathrm{gain\_x}"),
    ],
)
def test_latex(term: Term, latex: str) -> None:
    assert to_latex(term) == latex


def test_axes_of_inputs_on_request() -> None:
    x = expr.symbol("X", ["b", H.split()[2]])
    assert to_text(x) == "X"
    assert to_text(x, axes=True) == "X[b,h.t]"
    assert to_latex(x, axes=True) == r"X_{b,h_{\mathrm{tile}}}"
    assert to_latex(expr.symbol("X", ["h'"]), axes=True) == "X_{h'}"
