r"""Formulas as MathML, which browsers draw by themselves: from the LaTeX that abstract expressions are written in.

Invariant: what is not known of LaTeX stays visible as text; nothing is dropped in silence. A marked part (\boxed) becomes
`<mrow class="wb-match">`.
"""

from __future__ import annotations

import re
from html import escape

_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|[0-9]+(?:\.[0-9]+)?|[A-Za-z]+|\s+|.", re.DOTALL)
_SYMBOLS = {r"\cdot": "·", r"\Sigma": "Σ", r"\|": "‖", r"\_": "_", r"\{": "{", r"\}": "}"}
_SPACES = frozenset({r"\!", r"\,", r"\;", r"\ "})
_NAMES = frozenset({r"\max", r"\min", r"\exp", r"\log", r"\tanh"})
_CLOSING = frozenset(")]}")


def mathml(latex: str, *, block: bool = True) -> str:
    """Return a formula as one `<math>` element; "" for an empty one."""
    if not latex:
        return ""
    display = ' display="block"' if block else ""
    return f"<math{display}>{_Reader(latex).row()}</math>"


class _Reader:
    def __init__(self, latex: str) -> None:
        self.tokens = [token for token in _TOKEN.findall(latex) if not token.isspace()]
        self.at = 0

    def row(self, end: str = "") -> str:
        """Return everything up to a closing token."""
        parts: list[str] = []
        while self.at < len(self.tokens) and self.tokens[self.at] != end:
            parts.append(self._scripted())
        self.at += 1
        return f"<mrow>{''.join(parts)}</mrow>"

    def _scripted(self) -> str:
        base = self._atom()
        while self.at < len(self.tokens) and self.tokens[self.at] in "_^":
            tag = "msub" if self.tokens[self.at] == "_" else "msup"
            self.at += 1
            base = f"<{tag}>{base or '<mrow></mrow>'}{self._argument()}</{tag}>"
        return base

    def _argument(self) -> str:
        if self.at < len(self.tokens) and self.tokens[self.at] == "{":
            self.at += 1
            return self.row("}")
        return self._atom() or "<mrow></mrow>"

    def _atom(self) -> str:
        if self.at >= len(self.tokens):
            return ""
        token = self.tokens[self.at]
        self.at += 1
        if token == "{":
            return self.row("}")
        if token in (r"\frac", r"\tfrac"):
            return f"<mfrac>{self._argument()}{self._argument()}</mfrac>"
        if token == r"\sqrt":
            return f"<msqrt>{self._argument()}</msqrt>"
        if token == r"\boxed":
            return f'<mrow class="wb-match">{self._argument()}</mrow>'
        if token in (r"\operatorname", r"\mathrm"):
            return f"<mi>{escape(self._words())}</mi>"
        if token in (r"\left", r"\right"):
            return self._fence()
        if token in _SPACES:
            return ""
        if token in _NAMES:
            return f"<mi>{token[1:]}</mi>"
        if token in _SYMBOLS:
            return f"<mo>{escape(_SYMBOLS[token])}</mo>"
        if token[0].isdigit():
            return f"<mn>{token}</mn>"
        return f"<mi>{escape(token)}</mi>" if token[0].isalpha() or token[0] == "\\" else f"<mo>{escape(token)}</mo>"

    def _fence(self) -> str:
        if self.at >= len(self.tokens):
            return ""
        fence = self.tokens[self.at]
        self.at += 1
        return f"<mo>{escape(fence)}</mo>"

    def _words(self) -> str:
        """Return the plain text of a braced argument."""
        if self.at >= len(self.tokens) or self.tokens[self.at] != "{":
            return ""
        end = self.at
        while end < len(self.tokens) and self.tokens[end] != "}":
            end += 1
        text = " ".join(_SYMBOLS.get(token, token) for token in self.tokens[self.at + 1 : end])
        self.at = end + 1
        return text.replace(" _ ", "_")
