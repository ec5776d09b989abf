r"""Writes abstract expressions as the lecture does: Σ_h[G·W·X / √(Σ_h[X·X / 64])], as text and as LaTeX.

Invariant: equal terms are written equally; parentheses stand only where they are needed. A marked subterm is written
⟦ ⟧ in text and \boxed{ } in LaTeX.
"""

from __future__ import annotations

from fractions import Fraction

from workbench.domains.abstract_expr import Axis, Kind, Part, Term

ADD, MUL, ATOM = 0, 1, 2  # how tightly a printed piece binds
TextPiece = tuple[str, int]


def to_text(term: Term, *, axes: bool = False) -> str:
    """Return the term in the lecture's notation; `axes` also writes the axes of inputs, X[b,h]."""
    pieces: dict[int, TextPiece] = {}
    for sub in term.subterms():
        pieces[id(sub)] = _text(sub, [pieces[id(arg)] for arg in sub.args], axes)
    return pieces[id(term)][0]


def to_latex(term: Term, *, axes: bool = False) -> str:
    """Return the term as LaTeX, without dollar signs."""
    pieces: dict[int, TextPiece] = {}
    for sub in term.subterms():
        pieces[id(sub)] = _latex(sub, [pieces[id(arg)] for arg in sub.args], axes)
    return pieces[id(term)][0]


def _wrap(piece: TextPiece, least: int) -> str:
    return piece[0] if piece[1] >= least else f"({piece[0]})"


def _text(term: Term, args: list[TextPiece], axes: bool) -> TextPiece:
    match term.kind:
        case Kind.SYMBOL:
            return (f"{term.name}[{','.join(map(str, term.axes))}]" if axes and term.axes else term.name), ATOM
        case Kind.CONSTANT:
            return str(term.number), _number_level(term.number)
        case Kind.ADD:
            return f"{args[0][0]} + {_wrap(args[1], MUL)}", ADD
        case Kind.MUL:
            return f"{_wrap(args[0], MUL)}·{_wrap(args[1], ATOM)}", MUL
        case Kind.DIV:
            return f"{_wrap(args[0], MUL)} / {_wrap(args[1], ATOM)}", MUL
        case Kind.SQRT:
            return f"√({args[0][0]})", ATOM
        case Kind.SUM:
            return f"Σ_{_over(term)}[{args[0][0]}]", ATOM
        case Kind.MAX:
            return f"max_{_over(term)}[{args[0][0]}]", ATOM
        case Kind.MARK:
            return f"⟦{args[0][0]}⟧", ATOM
        case Kind.CONCAT:
            parts = " | ".join(f"{axis}: {piece}" for axis, (piece, _) in zip(term.axes, args, strict=True))
            return f"[{parts}]", ATOM
    name = "max" if term.kind is Kind.MAXIMUM else term.name or term.kind.value
    return f"{name}({', '.join(piece for piece, _ in args)})", ATOM


def _over(term: Term) -> str:
    names = [str(axis) for axis in term.axes]
    text = str(term.size) if term.size else ",".join(names)
    return text if len(names) < 2 else "{" + text + "}"


def _number_level(number: Fraction) -> int:
    return ATOM if number.denominator == 1 and number >= 0 else ADD


def _latex(term: Term, args: list[TextPiece], axes: bool) -> TextPiece:
    match term.kind:
        case Kind.SYMBOL:
            name = _latex_name(term.name)
            return (f"{name}_{{{','.join(map(_latex_axis, term.axes))}}}" if axes and term.axes else name), ATOM
        case Kind.CONSTANT:
            number = term.number
            text = str(number) if number.denominator == 1 else _fraction(number)
            return text, ATOM if number >= 0 else ADD
        case Kind.ADD:
            return f"{args[0][0]} + {_latex_wrap(args[1], MUL)}", ADD
        case Kind.MUL:
            return rf"{_latex_wrap(args[0], MUL)} \cdot {_latex_wrap(args[1], ATOM)}", MUL
        case Kind.DIV:
            return rf"\frac{{{args[0][0]}}}{{{args[1][0]}}}", ATOM
        case Kind.SQRT:
            return rf"\sqrt{{{args[0][0]}}}", ATOM
        case Kind.SUM:
            return rf"\Sigma_{{{_latex_over(term)}}}\!\left[{args[0][0]}\right]", ATOM
        case Kind.MAX:
            return rf"\max_{{{_latex_over(term)}}}\!\left[{args[0][0]}\right]", ATOM
        case Kind.MARK:
            return rf"\boxed{{{args[0][0]}}}", ATOM
        case Kind.CONCAT:
            parts = r" \,\|\, ".join(piece for piece, _ in args)
            return rf"\left[{parts}\right]", ATOM
    names = {"exp": r"\exp", "maximum": r"\max", "log": r"\log", "tanh": r"\tanh"}
    name = term.name or term.kind.value
    shown = names.get(name, rf"\operatorname{{{name.replace('_', ' ')}}}")
    return rf"{shown}\!\left({', '.join(piece for piece, _ in args)}\right)", ATOM


def _fraction(number: Fraction) -> str:
    sign = "-" if number < 0 else ""
    return rf"{sign}\tfrac{{{abs(number.numerator)}}}{{{number.denominator}}}"


def _latex_wrap(piece: TextPiece, least: int) -> str:
    return piece[0] if piece[1] >= least else rf"\left({piece[0]}\right)"


def _latex_over(term: Term) -> str:
    return str(term.size) if term.size else ",".join(map(_latex_axis, term.axes))


def _latex_axis(axis: Axis) -> str:
    names = {Part.WHOLE: "", Part.GRID: "grid", Part.LOOP: "loop", Part.TILE: "tile"}
    part = names[axis.part]
    base = axis.name.rstrip("'")
    name = _latex_name(base) + "'" * (len(axis.name) - len(base))
    return rf"{name}_{{\mathrm{{{part}}}}}" if part else name


def _latex_name(name: str) -> str:
    letters = name.rstrip("0123456789")
    digits = name[len(letters) :]
    shown = letters if len(letters) == 1 else rf"\mathrm{{{letters.replace('_', chr(92) + '_')}}}"
    return f"{shown}_{{{digits}}}" if digits else shown
