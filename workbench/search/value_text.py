"""Values of a search in the lecture's notation, with the program's names and extents. Invariant: nothing is written early."""

from __future__ import annotations

import re
from dataclasses import dataclass

from workbench.domains import abstract_print
from workbench.domains.abstract_expr import Term
from workbench.domains.abstract_normal_form import Value
from workbench.domains.abstract_readback import Readback
from workbench.search.expressions import Expressions
from workbench.search.problem import Problem


class ValueTexts:
    """The texts of one set of expressions; each is put together once."""

    def __init__(self, expressions: Expressions) -> None:
        self._problem = expressions.problem
        self._readback = Readback(expressions.algebra)
        self._known: dict[Value, str] = {}

    def of(self, value: Value) -> str:
        """Return the text of a value."""
        if value not in self._known:
            self._known[value] = term_text(self._readback.term(value), self._problem)
        return self._known[value]


@dataclass(frozen=True, slots=True)
class ValueText:
    """The text of a value, written when asked for."""

    texts: ValueTexts
    value: Value

    def __call__(self) -> str:
        """Return it."""
        return self.texts.of(self.value)


def term_text(term: Term, problem: Problem) -> str:
    """Return a term as text; a problem's own names of inputs and of extents are replaced by the program's."""
    extents = {str(number): str(problem.extents[name]) for name, number in problem.numbers.items()}
    names = {f"in{position}": tensor.name for position, tensor in enumerate(problem.program.inputs)}
    return re.sub(
        r"\bin\d+\b|\b\d{7,}\b",
        lambda found: {**extents, **names}.get(found[0], found[0]),
        abstract_print.to_text(term),
    )
