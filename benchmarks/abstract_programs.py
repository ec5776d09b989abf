"""Programs as abstract expressions, for the measurements of the algebra: inputs with axes, outputs, palette.

Invariant: nothing here is a graph; each program is a term per output, so the algebra is measured alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from workbench.domains import abstract_expr as expr
from workbench.domains.abstract_expr import Axis, Term

SCALE = expr.constant("1/64")
MINUS = expr.constant(-1)


@dataclass(frozen=True)
class Program:
    """A program: names and axes (letters) of its inputs, axes of its output, and the output as a term.

    Attributes: build (terms of the inputs, reduction over an axis by its letter -> output); has_scale (a constant
    factor occurs); functions (opaque functions of the palette).
    """

    name: str
    inputs: dict[str, str]
    output: str
    build: Callable[[dict[str, Term], Callable[[str, Term], Term]], Term]
    has_scale: bool = False
    functions: tuple[str, ...] = ()

    def axes(self, loop: str | None, letters: str) -> list[Axis]:
        """Return the axes of letters; the looped one is split in its loop and its tile part."""
        parts: list[Axis] = []
        for letter in letters:
            axis = Axis(letter)
            parts += axis.split()[1:] if letter == loop else [axis]
        return parts

    def symbols(self, loop: str | None) -> dict[str, Term]:
        """Return the inputs as terms."""
        return {name: expr.symbol(name, self.axes(loop, letters)) for name, letters in self.inputs.items()}

    def goal(self, loop: str | None) -> Term:
        """Return the output as a term."""
        return self.build(self.symbols(loop), lambda letter, term: expr.sum_over(self.axes(loop, letter), term))


Sum = Callable[[str, Term], Term]
Inputs = dict[str, Term]


def rms(term: Term, over: str, total: Sum) -> Term:
    """Return sqrt(scale * sum of squares)."""
    return expr.sqrt(expr.mul(total(over, expr.square(term)), SCALE))


def _rms_norm_linear(t: Inputs, total: Sum) -> Term:
    normed = expr.mul(expr.div(t["X"], rms(t["X"], "h", total)), t["G"])
    return total("h", expr.mul(normed, t["W"]))


def _gated_mlp(t: Inputs, total: Sum) -> Term:
    return expr.mul(expr.silu(total("h", expr.mul(t["X"], t["W"]))), total("h", expr.mul(t["X"], t["V"])))


def _lora(t: Inputs, total: Sum) -> Term:
    low = total("h", expr.mul(t["X"], t["A"]))
    return expr.add(total("h", expr.mul(t["X"], t["W"])), total("r", expr.mul(low, t["B"])))


def _attention(t: Inputs, total: Sum) -> Term:
    weights = expr.exp(total("d", expr.mul(t["Q"], t["K"])))
    return total("s", expr.mul(expr.div(weights, total("s", weights)), t["V"]))


def _qk_norm_attention(t: Inputs, total: Sum) -> Term:
    normed = {name: expr.div(t[name], rms(t[name], "d", total)) for name in ("Q", "K")}
    return _attention({**t, **normed}, total)


def _ntrans(t: Inputs, total: Sum) -> Term:
    """Mirage's form: rms and add."""
    normed = expr.div(t["H"], rms(t["H"], "h", total))
    mixed = expr.add(t["X"], expr.mul(t["A"], expr.add(normed, t["X"])))
    return expr.div(mixed, rms(mixed, "h", total))


def _attention_safe(t: Inputs, total: Sum) -> Term:
    logits = total("d", expr.mul(t["Q"], t["K"]))
    shifted = expr.add(logits, expr.mul(MINUS, expr.max_over(Axis("s"), logits)))
    weights = expr.exp(shifted)
    return total("s", expr.mul(expr.div(weights, total("s", weights)), t["V"]))


PROGRAMS = {
    program.name: program
    for program in (
        Program("rms_norm_linear", {"X": "bh", "G": "h", "W": "hd"}, "bd", _rms_norm_linear, True),
        Program("gated_mlp", {"X": "bh", "W": "hd", "V": "hd"}, "bd", _gated_mlp, functions=("silu",)),
        Program("lora", {"X": "bh", "W": "hd", "A": "hr", "B": "rd"}, "bd", _lora),
        Program("attention", {"Q": "qd", "K": "sd", "V": "se"}, "qe", _attention),
        Program("attention_safe", {"Q": "qd", "K": "sd", "V": "se"}, "qe", _attention_safe),
        Program("qk_norm_attention", {"Q": "qd", "K": "sd", "V": "se"}, "qe", _qk_norm_attention, True),
        Program("ntrans", {"X": "bh", "H": "bh", "A": "h"}, "bh", _ntrans, True),
    )
}
