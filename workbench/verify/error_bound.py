"""How often two different programs pass a random test: the bound that is printed beside "equal", and what it rests on.

Invariant: every number holds for the shapes of the graphs given, under the premises listed as checked or assumed; where no
number is known the answer is None with the reason, never a guess. The theorems are in `docs/verification.md`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, log

from workbench.display import Displayed
from workbench.domains.field_pairs import FieldPair
from workbench.errors import UsageError
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.verify.degrees import analyse


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound(Displayed):
    """How often one random test accepts two programs that differ.

    Attributes:
        per_test: probability that one test accepts, at most; None where no bound below 1 is known.
        name: which bound `per_test` is: "schwartz-zippel", "mixed sets", "theorem 2", or "" if there is none.
        degree_u: degree of the difference in the values modulo p (after conjugation where roots occur).
        degree_y: degree of the difference in the exponentials, 0 without exp.
        conditioned_roots: independent roots in one output element's cone; inputs are drawn until each has a square.
        height_p, height_q: how large integer coefficients and exponents can be, in bits.
        pairs_needed: 1, or 2 where the heights reach the primes: test under a second, independent pair too.
        premises: what was checked, in words.
        assumptions: what the number rests on and was not checked, in words.
        bounds: every bound that was computed, by name.
        opaque: operators taken as random functions of their arguments.
        per_cell: True with piecewise operators: the number holds for each cell that was tested.
        reason: why there is no number, "" if there is one.
    """

    per_test: float | None
    name: str
    degree_u: int | None = None
    degree_y: int | None = None
    conditioned_roots: int = 0
    height_p: float = 0.0
    height_q: float = 0.0
    pairs_needed: int = 1
    premises: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    bounds: dict[str, float] = field(default_factory=dict)
    opaque: tuple[str, ...] = ()
    per_cell: bool = False
    reason: str = ""

    @property
    def degree(self) -> int | None:
        """Degree of the difference in all variables, None where it is not known."""
        if self.degree_u is None or self.degree_y is None:
            return None
        return self.degree_u + self.degree_y

    def explain(self) -> str:
        """Return the bound in words, one line each for the number, what was checked, and what was not."""
        if self.per_test is None:
            lines = [f"no bound: {self.reason}"]
        else:
            lines = [
                f"one test accepts different programs with probability at most {self.per_test:.3g} ({self.name}; "
                f"degree {self.degree_u} modulo p, {self.degree_y} in the exponentials)"
            ]
        lines += [f"  checked: {premise}" for premise in self.premises]
        lines += [f"  assumed: {assumption}" for assumption in self.assumptions]
        lines += [f"  {name}: {value:.3g}" for name, value in self.bounds.items() if name != self.name]
        return "\n".join(lines)

    def describe(self) -> str:
        """Return the same as `explain`."""
        return self.explain()


def bound_per_test(program: KernelGraph, candidate: KernelGraph, pair: FieldPair, *, seed: int = 0) -> Bound:
    """Return how often one test under a field pair accepts the candidate although it differs from the program.

    Both graphs as they are evaluated (square radicands rewritten, `radicands.rewrite_square_radicands`); seed: of the
    random points at which premises are checked. A test draws all inputs, and draws again where a denominator is zero or a
    radicand is no square; it accepts when all output elements agree on every side that both have.
    """
    left, right = analyse(program), analyse(candidate)
    opaque = tuple(dict.fromkeys((*left.opaque, *right.opaque)))
    reason = left.reason or right.reason
    if reason:
        return Bound(per_test=None, name="", opaque=opaque, reason=reason)
    degree = max(left.numerator + right.denominator, right.numerator + left.denominator)
    zero_p = (left.zeros + right.zeros) / pair.p
    zero_q = (left.zeros + right.zeros) / pair.q
    if zero_p + zero_q >= 1:
        return Bound(per_test=None, name="", degree_u=degree, degree_y=0, opaque=opaque,
                     reason=f"field pair {pair.name} is too small for the number of denominators")  # fmt: skip
    value = degree / pair.p * degree / pair.q / (1 - zero_p - zero_q)
    if value >= 1:
        return Bound(per_test=None, name="", degree_u=degree, degree_y=0, opaque=opaque,
                     reason=f"degree {degree} is too large for field pair {pair.name}")  # fmt: skip
    return Bound(
        per_test=value,
        name="schwartz-zippel",
        degree_u=degree,
        degree_y=0,
        pairs_needed=2,
        assumptions=("no coefficient of the difference is a multiple of p or q (heights are not tracked)",),
        bounds={"schwartz-zippel": value},
        opaque=opaque,
        per_cell=left.piecewise or right.piecewise,
    )


def tests_needed(bound: Bound, error: float) -> int | None:
    """Return how many independent tests bring the error to at most `error`, None where the bound cannot.

    Raises: UsageError unless 0 < error < 1.
    """
    if not 0 < error < 1:
        raise UsageError(f"error {error} must lie between 0 and 1, both excluded")
    if bound.per_test is None or bound.per_test >= 1:
        return None
    if bound.per_test == 0:
        return 1
    tests = max(1, ceil(log(error) / log(bound.per_test) - 1e-9))
    return tests if combined(bound, tests) <= error else tests + 1


def combined(bound: Bound, tests: int) -> float:
    """Return how often `tests` independent tests all accept two programs that differ; 1.0 where no bound is known."""
    if bound.per_test is None or tests < 1:
        return 1.0
    return float(min(1.0, bound.per_test) ** tests)
