"""How often two different programs pass a random test: the bound that is printed beside "equal", and what it rests on.

Invariant: every number holds for the shapes of the graphs given, under the premises listed as checked or assumed; where no
number is known the answer is None with the reason, never a guess. The theorems are in `docs/verification.md`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil, log, log2

from workbench.display import Displayed
from workbench.domains.field_pairs import FieldPair
from workbench.domains.residues import Modulus
from workbench.errors import NotApplicableError, UsageError
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.verify.acceptance import Acceptance, Side, laurent_degree, theorem_two
from workbench.verify.degrees import Size
from workbench.verify.elements import Elements, elements_of
from workbench.verify.forms import Forms

MAX_ZEROS = 0.25  # so often some denominator may be zero; the bound is divided by 1 - 2 * that
SCHWARTZ_ZIPPEL, MIXED, THEOREM_TWO = "schwartz-zippel", "mixed sets", "theorem 2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound(Displayed):
    """How often one random test accepts two programs that differ.

    Attributes:
        per_test: probability that one test accepts, at most; None where no bound below 1 is known.
        name: which bound `per_test` is: "schwartz-zippel", "mixed sets", "theorem 2", or "" if there is none.
        degree_u: degree of the difference in the values modulo p (of its norm where roots occur).
        degree_y: degree of the difference in the exponentials, 0 without exp.
        conditioned_roots: different roots that an output element rests on.
        height: log2 of the largest integer coefficient that the difference can have.
        pairs_needed: 1, or 2 where the height reaches the primes: test under a second, independent pair too.
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
    height: float = 0.0
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
                f"one test accepts different programs with probability at most {self.per_test:.3g} ({self.name}; degree "
                f"{self.degree_u} in the values, {self.degree_y} in the exponentials)"
            ]
        if self.per_cell:
            lines.append("  piecewise operators: the number holds for each cell that is tested")
        lines += [f"  checked: {premise}" for premise in self.premises]
        lines += [f"  assumed: {assumption}" for assumption in self.assumptions]
        lines += [f"  {name}: {value:.3g}" for name, value in self.bounds.items() if name != self.name]
        return "\n".join(lines)

    def describe(self) -> str:
        """Return the same as `explain`."""
        return self.explain()


def bound_per_test(
    program: KernelGraph, candidate: KernelGraph, pair: FieldPair, *, seed: int = 0, compare_q: bool = True
) -> Bound:
    """Return how often one test under a field pair accepts the candidate although it differs from the program.

    Both graphs as they are evaluated, at any shapes (square radicands rewritten, `radicands.rewrite_square_radicands`).
    seed: of the random points at which premises are checked; compare_q: whether inputs have parts modulo q and outputs are
    compared there too where both have them. A test draws all inputs, draws again where a denominator is zero or a radicand
    is no square, and accepts when all output elements agree.
    """
    forms = Forms()
    try:
        left, right = (elements_of(graph, forms, root_on_q=pair.root_on_q) for graph in (program, candidate))
    except NotApplicableError as error:
        return Bound(per_test=None, name="", reason=str(error))
    if left.shapes != right.shapes:
        return Bound(per_test=None, name="", reason=f"the outputs have shapes {left.shapes} and {right.shapes}")
    divisors, radicands = (*left.divisors, *right.divisors), (*left.radicands, *right.radicands)
    sums = Acceptance(
        forms,
        Modulus(pair.p),
        Modulus(pair.q),
        seed,
        divisors,
        [radicand for radicand, _ in radicands if radicand.terms],
    )
    bounds = [_of_output(sums, left, right, number, pair, compare_q) for number in range(len(left.outputs))]
    return max(bounds, key=lambda bound: 2.0 if bound.per_test is None else bound.per_test)


def _of_output(
    sums: Acceptance, left: Elements, right: Elements, number: int, pair: FieldPair, compare_q: bool
) -> Bound:
    """Return the bound for programs that differ in one output."""
    a, b = left.outputs[number], right.outputs[number]
    side, size = sums.side(a, b, "p")
    sides = {"p": side}
    if compare_q and left.has_q[number] and right.has_q[number]:
        sides["q"] = sums.side(a, b, "q")[0]
    opaque = tuple(dict.fromkeys((*left.opaque, *right.opaque)))
    common = Bound(
        per_test=None,
        name="",
        degree_u=ceil(size.degree * 2**side.roots.together),
        degree_y=laurent_degree(size),
        conditioned_roots=side.roots.in_cone,
        height=size.height,
        premises=_premises(sides),
        assumptions=_assumptions(sides, opaque),
        opaque=opaque,
        per_cell=left.piecewise or right.piecewise,
    )
    reason = next((s.roots.reason for s in sides.values() if s.roots.reason), "")
    if reason:
        return replace(common, reason=reason)
    zeros = {name: sums.zeros(name) for name in ("p", "q")}
    reason = next((why for _, why in zeros.values() if why), "")
    if not reason and sum(value for value, _ in zeros.values()) > MAX_ZEROS:
        reason = f"field pair {pair.name} is too small for so many denominators: some would often be zero"
    if reason:
        return replace(common, reason=reason)
    share = 1 - 2 * sum(value for value, _ in zeros.values())
    if size.plus or size.minus:
        return _with_exponentials(common, side, size, share, pair)
    return _without_exponentials(common, sides, share, pair)


def _without_exponentials(common: Bound, sides: dict[str, Side], share: float, pair: FieldPair) -> Bound:
    """Return the bound of independent comparisons on one side or on both; those whose heights fit need no assumption."""
    fitting = {name: s for name, s in sides.items() if s.heights_fit}
    used = fitting or sides
    value = 1.0
    for s in used.values():
        value *= min(1.0, s.value)
    value = (value + sides["p"].meeting) / share  # both parts of a random function look at the same arguments
    if value >= 1:
        reason = sides["p"].basis.reason or _too_small(value, common, pair)
        return replace(common, bounds={SCHWARTZ_ZIPPEL: value}, reason=reason)
    common = replace(common, per_test=value, name=SCHWARTZ_ZIPPEL, bounds={SCHWARTZ_ZIPPEL: value})
    return common if fitting else _with_height_assumption(common, pair)


def _with_exponentials(common: Bound, side: Side, size: Size, share: float, pair: FieldPair) -> Bound:
    """Return the mixed-set bound where its premise is shown, else the paper's theorem 2."""
    bounds: dict[str, float] = {}
    reason = side.basis.reason
    if not reason and laurent_degree(size) >= pair.q / 2:
        reason = f"exponents count up to {laurent_degree(size)} times an atom, which is not below q / 2"
    if not reason:
        bounds[MIXED] = (side.value + side.meeting) / share
    if not side.roots.together and not common.opaque:
        degree = max(1, ceil(size.degree), side.basis.degree)
        if size.height + 1 < log2(pair.q):
            bounds[THEOREM_TWO] = theorem_two(degree, size.terms, pair.q)
    usable = {name: value for name, value in bounds.items() if value < 1}
    if not usable:
        return replace(common, bounds=bounds, reason=reason or _too_small(bounds[MIXED], common, pair))
    name = min(usable, key=lambda key: (key != MIXED, usable[key]))
    premises = (*common.premises, *side.basis.premises) if name == MIXED else ()
    common = replace(common, per_test=usable[name], name=name, bounds=bounds, premises=premises)
    return common if side.heights_fit else _with_height_assumption(common, pair)


def _too_small(value: float, common: Bound, pair: FieldPair) -> str:
    return (
        f"the bound is {value:.3g}, not below 1, at degree {common.degree} in field pair {pair.name}; use a larger pair"
    )


def _with_height_assumption(bound: Bound, pair: FieldPair) -> Bound:
    text = (
        f"the difference is not zero modulo the primes of {pair.name}: its coefficients may have {bound.height:.0f} bits, so "
        "that is not shown; test under a second, independent pair"
    )
    return replace(bound, pairs_needed=2, assumptions=(*bound.assumptions, text))


def _premises(sides: dict[str, Side]) -> tuple[str, ...]:
    found = [premise for side in sides.values() for premise in side.roots.premises]
    fitting = [name for name, side in sides.items() if side.heights_fit]
    if fitting:
        found.append(f"integer coefficients of the difference are smaller than {' and '.join(fitting)}")
    return tuple(dict.fromkeys(found))


def _assumptions(sides: dict[str, Side], opaque: tuple[str, ...]) -> tuple[str, ...]:
    found = [text for side in sides.values() for text in side.roots.assumptions]
    if opaque:
        found.append(f"what stands for {', '.join(opaque)} behaves as a random function of its argument")
    return tuple(dict.fromkeys(found))


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
    """Return how often `tests` independent tests all accept two programs that differ; 1.0 where no bound is known.

    With two pairs the larger of both numbers holds, if the difference is not zero modulo one of them.
    """
    if bound.per_test is None or tests < 1:
        return 1.0
    return float(min(1.0, bound.per_test) ** tests)
