"""Why a program has no µGraph in the space, told before anything is searched. Invariant: each reason is one plain line."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.domains.abstract_expr import Kind
from workbench.search.problem import Problem


def reasons(problem: Problem) -> Iterator[str]:
    """Yield what keeps outputs of a program out of every space, nothing if all can be made."""
    terms = {start.term for start in problem.starts}
    made = [goal for goal in problem.goals if goal.term not in terms]
    if not made:
        yield "every output is an input, at most moved: there is nothing to compute"
    known = {name for start in problem.starts for dim in start.dims for name in dim}
    for number, goal in enumerate(problem.goals):
        new = sorted({name for dim in goal.dims for name in dim} - known)
        tensor = problem.program.outputs[number]
        if new:
            extents = ", ".join(str(problem.extents[name]) for name in new)
            yield f"output {tensor.name} is broadcast along an axis (extent {extents}) that no input has"
        elif not any(sub.kind is Kind.SYMBOL for sub in goal.term.subterms()):
            yield f"output {tensor.name} does not depend on any input"
