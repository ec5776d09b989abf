"""One extension of a prefix as a stepper shows it: operator, operands, expression, the goal, and what every pruner says.

Invariant: nothing is written before somebody asks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workbench.domains import abstract_print
from workbench.domains.abstract_expr import Term, map_terms, symbol
from workbench.domains.abstract_readback import Readback
from workbench.search.prefix.prefixes import extended_name
from workbench.search.prefix.tensors import Tensor
from workbench.search.pruners.expression import ExpressionRule
from workbench.search.pruners.rule import Context, Judged, Outlook, Rule


@dataclass(frozen=True, slots=True)
class Looked:
    """An extension.

    Attributes: name, parent: of prefixes; operator: in words; operands: positions in the operator's order; dropped_by: the
    rule that drops it first, "" for none; verdicts: of every pruner.
    """

    name: str
    parent: str
    operator: str
    operands: tuple[int, ...]
    dropped_by: str
    verdicts: tuple[Judged, ...]
    outlook: Outlook
    context: Context
    rule: ExpressionRule | None

    def expression(self, *, latex: bool = False) -> str:
        """Return the new tensor's expression in the lecture's notation."""
        made, rule = self._made(), self.rule
        if rule is None:
            tensors = self.context.tensors
            return self._text(Readback(tensors.algebra).term(tensors.value(made)), latex=latex)
        return self._once(rule, "expression", rule.term, latex=latex)

    def goal(self, *, latex: bool = False) -> str:
        """Return the goal with the part marked that the tensor matches; unmarked where it matches none."""
        rule = self.rule
        if rule is None:
            return self._text(self.context.problem.goals[0].term, latex=latex)
        return self._once(rule, "goal", rule.goal_with_part, latex=latex)

    def _made(self) -> Tensor:
        made = self.outlook.move.made
        assert made is not None
        return made

    def _once(self, rule: ExpressionRule, what: str, term: Callable[[Tensor], Term], *, latex: bool) -> str:
        """Return a text that follows from the new tensor's expression alone, written at the first time of asking."""
        made = self._made()
        key = (rule.expression(made), f"{what} {latex}")
        if key not in rule.words:
            rule.words[key] = self._text(term(made), latex=latex)
        return rule.words[key]

    def subject(self) -> str:
        """Return the operator with its operands and what it would make."""
        operands = ", ".join(map(str, self.operands))
        return f"{self.operator}({operands}) = {self.expression()}"

    def evidence(self, rule: str) -> str:
        """Return why a rule drops it."""
        for verdict in self.verdicts:
            if verdict.pruner == rule:
                return self.named(verdict.why())
        return _WORDS.get(rule, "")

    def lines(self) -> str:
        """Return the pruners' verdicts, one a line."""
        return self.named("\n".join(verdict.describe() for verdict in self.verdicts))

    def named(self, text: str) -> str:
        """Return a text with inputs by their names."""
        inputs = self.context.problem.program.inputs
        return re.sub(r"\bin(\d+)\b", lambda found: inputs[int(found[1])].name, text)

    def _text(self, term: Term, *, latex: bool) -> str:
        names = {f"in{start.position}": start.position for start in self.context.problem.starts}
        inputs = self.context.problem.program.inputs

        def named(sub: Term) -> Term:
            return symbol(inputs[names[sub.name]].name, sub.axes) if sub.name in names else sub

        shown = map_terms(term, named)
        return abstract_print.to_latex(shown) if latex else abstract_print.to_text(shown)


_WORDS = {
    "duplicate": "its kernel, or device memory, has a tensor of equal expression already",
    "limits": "no operator of this kind is left",
}


def look(rules: Sequence[Rule], context: Context, outlook: Outlook, moment: int, dropped_by: str) -> Looked:
    """Return an extension as a stepper shows it."""
    step = (moment, outlook.high, outlook.low, outlook.move.rank)
    positions = {id(outlook.prefix.tensors[p]): p for p in (outlook.low, outlook.high) if p >= 0}
    operands = tuple(positions[id(operand)] for operand in outlook.move.operands)
    return Looked(
        extended_name(outlook.prefix.name, step),
        outlook.prefix.name,
        outlook.move.label(),
        operands,
        dropped_by,
        tuple(rule.explain(outlook) for rule in rules),
        outlook,
        context,
        next((rule for rule in rules if isinstance(rule, ExpressionRule)), None),
    )
