"""`verify`: are two programs equal? Floats first (they find witnesses), then the field (it gives the number).

Order: interfaces, one expression per output (a proof), reduced instances (float64; pieces on the smallest; field), true
shapes (exact form where they are small, float64, field) with as many tests as the wanted error asks for. Long because
this order is one argument, read in one piece. Invariant: "equal" carries a bound for the shapes
tested or is proved; "different" carries a witness.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

import numpy as np

from workbench.domains.field_pairs import FieldPair, field_pair
from workbench.errors import FieldError, NotApplicableError, OutsideLaxError, UsageError
from workbench.ugraph.kernel_graph import KernelGraph, expect_kernel_graph
from workbench.ugraph.nodes import Accumulator, OpNode, ThreadNode
from workbench.ugraph.reinstantiate import joint_reduction
from workbench.units import counted
from workbench.verify.elements import have_equal_forms
from workbench.verify.error_bound import Bound, bound_per_test, combined, tests_needed
from workbench.verify.evaluation_work import evaluation_work
from workbench.verify.exact_form import Budget, Proof, prove_equal
from workbench.verify.floats import compare_real, confirm_at_true_shapes
from workbench.verify.probabilistic import run_tests
from workbench.verify.radicands import rewrite_square_radicands
from workbench.verify.roots import NOT_INDEPENDENT
from workbench.verify.sampling import features
from workbench.verify.verdict import Instance, Verdict, Witness

ShapesWanted = Literal["auto", "true", "reduced"]
MAX_TESTS = 64
_NUMBERS = ("value", "factor", "eps", "lo", "hi")
SMALL_ELEMENTS, SMALL_WORK = 200, 5e3
"""Output elements and multiply-adds up to which a program is proved at its own shapes."""
PROOF_SECONDS = 2.0
LOOK_SECONDS = 0.0
"""Seconds, beyond the least number of rounds, in which a point is looked for at which a proof is tested: it needs none."""
NO_VALUES = "no inputs were found at which both sides are finite in float64"
CHEAP = 5e7
"""Multiply-adds up to which a difference on a reduced instance is always looked for at true shapes too."""
MAX_WORK = 3e10
"""Multiply-adds (and elements) above which shapes="auto" does not go to true shapes; about ten seconds on one core."""


@dataclass
class _Comparison:
    """One question on its way to an answer; collects what the verdict will say."""

    program: KernelGraph
    candidate: KernelGraph
    error: float
    pair: FieldPair | None
    rng: np.random.Generator
    start: float
    progress: Callable[[str], None]
    instances: list[Instance]
    tests: int = 0
    cells: int = 0
    opaque: tuple[str, ...] = ()
    used_pairs: tuple[str, ...] = ()
    bound: Bound | None = None
    error_bound: float | None = None
    unfaithful: bool = False

    def verdict(self, kind: Literal["equal", "different", "unknown"], reason: str, **extra: object) -> Verdict:
        """Return the verdict with everything collected so far."""
        bound = self.bound
        values: dict[str, object] = {
            "error_bound": self.error_bound if kind == "equal" else None,
            "tests": self.tests,
            "shapes_tested": tuple(self.instances),
            "field_pair": ", ".join(self.used_pairs),
            "degree": bound.degree if bound else None,
            "seconds": time.perf_counter() - self.start,
            "assumptions": bound.assumptions if bound and kind == "equal" else (),
            "bounds": dict(bound.bounds) if bound else {},
            "cells_tested": self.cells,
            "opaque": self.opaque,
            **extra,
        }
        return Verdict(kind=kind, reason=reason, **values)  # type: ignore[arg-type]


def verify(
    program: KernelGraph,
    candidate: KernelGraph,
    *,
    error: float = 1e-9,
    seed: int = 0,
    shapes: ShapesWanted = "auto",
    pair: FieldPair | str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Verdict:
    """Return whether a candidate computes what a program computes, with a bound on the probability of a wrong "equal".

    error: wanted bound; as many tests as it needs are run, or the verdict says why it cannot be reached.
    seed: of all random choices; the same seed gives the same verdict.
    shapes: "true" tests at the programs' own shapes too, "reduced" only on small instances, "auto" at true shapes where
    that takes seconds. pair: field pair (or its name) to use; by default the smallest working pair that reaches `error`.
    Raises: UsageError for inputs that differ in number or shape, and for an error outside (0, 1).
    Source: Mirage OSDI'25, section 5; the bound is `docs/verification.md`.
    """
    for graph in (program, candidate):
        expect_kernel_graph(graph, "compared")
    if not 0 < error < 1:
        raise UsageError(f"error {error} must lie between 0 and 1, both excluded")
    if shapes not in ("auto", "true", "reduced"):
        raise UsageError(f"shapes {shapes!r}: use 'auto', 'true' or 'reduced'")
    expected = [tensor.shape for tensor in program.inputs]
    found = [tensor.shape for tensor in candidate.inputs]
    if expected != found:
        raise UsageError(
            f"the programs take different inputs: {_shapes(expected)} and {_shapes(found)}; compare equal ones"
        )
    chosen = field_pair(pair) if isinstance(pair, str) else pair
    say = progress or (lambda text: None)
    work = _Comparison(program, candidate, error, chosen, np.random.default_rng(seed), time.perf_counter(), say, [])
    outputs = [[tensor.shape for tensor in graph.outputs] for graph in (program, candidate)]
    if outputs[0] != outputs[1]:
        return work.verdict(
            "different", f"outputs differ in number or shape: {_shapes(outputs[0])} and {_shapes(outputs[1])}"
        )
    try:
        return _answer(work, shapes)
    except OutsideLaxError as fault:
        return work.verdict("unknown", f"outside the fragment: {fault}")
    except FieldError as fault:
        return work.verdict("unknown", f"field pair too small: {fault}")


def _answer(work: _Comparison, shapes: ShapesWanted) -> Verdict:
    work.progress("one expression per output")
    reductions, why_not = _reductions(work)
    if have_equal_forms(work.program, work.candidate):
        return _proved_by_forms(work, reductions, shapes)
    piecewise = any(features(graph).piecewise for graph in (work.program, work.candidate))
    smallest = _smallest(work)
    if piecewise and smallest is not None:  # pieces are exponential in the sizes: decide them where they are fewest
        work.progress("pieces of the smallest instance")
        verdict = _instance(work, *smallest, reduced=True, decide=True)
        if verdict is not None:
            return verdict
    for number, (program, candidate) in enumerate(reductions):
        if work.unfaithful:
            break
        work.progress(f"reduced instance {number + 1} of {len(reductions)}")
        verdict = _instance(work, program, candidate, reduced=True, decide=False)
        if verdict is not None:
            return verdict
    cost = max(evaluation_work(work.program), evaluation_work(work.candidate))
    if work.unfaithful:
        why_not = "reduced instances are not used: the programs agree only at sizes or constants like theirs"
        work.instances.clear()
    at_true = shapes == "true" or work.unfaithful or not reductions or (shapes == "auto" and cost <= MAX_WORK)
    if at_true and _is_small(work.program):
        work.progress("exact form")
        settled = _prove(work, work.program, work.candidate, reduced=False)
        if settled is not None:
            return settled
    if at_true:
        work.progress("true shapes")
        decide = piecewise and smallest is None
        verdict = _instance(work, work.program, work.candidate, reduced=False, decide=decide)
        if verdict is not None:
            return verdict
    if (work.error_bound is None or work.error_bound >= 1) and not work.unfaithful:
        settled = _prove(work, *(smallest or (work.program, work.candidate)), reduced=smallest is not None)
        if settled is not None:
            return settled
    return _equal(work, at_true=at_true, why_not=why_not, cost=cost)


def _proved_by_forms(
    work: _Comparison, reductions: Sequence[tuple[KernelGraph, KernelGraph]], shapes: ShapesWanted
) -> Verdict:
    """Return "equal, proved" for programs whose elements are the same expressions at true shapes.

    The proof stands alone; floats and one random test at each reduced instance (at true shapes where that is cheap, or
    asked for) look for a fault of ours.
    """
    work.progress("a look at floats and field")
    cases = [(*pair, True) for pair in reductions]
    cost = max(evaluation_work(work.program), evaluation_work(work.candidate))
    if shapes == "true" or cost <= CHEAP:
        cases.append((work.program, work.candidate, False))
    for program, candidate, reduced in cases:
        verdict = _contradiction(work, program, candidate, reduced=reduced)
        if verdict is not None:
            return verdict
    own = tuple(tensor.shape for tensor in work.program.inputs)
    work.instances.append(Instance(shapes=own, reduced=False, tests=0, exact=True))
    work.error_bound = 0.0
    tests = f"; {_agreeing(work.tests)} as well" if work.tests else ""
    if not cases:
        tests = f"; no reduced instance to test besides, and true shapes take {cost:.2g} multiply-adds"
    return work.verdict(
        "equal", f"proved at true shapes: every output is one and the same expression{tests}", proved=True
    )


def _contradiction(work: _Comparison, program: KernelGraph, candidate: KernelGraph, *, reduced: bool) -> Verdict | None:
    """Return a verdict where floats or the field contradict a proof, or there is nothing it says; None where they do not."""
    small = evaluation_work(program) + evaluation_work(candidate) < 1e6
    for styles in (("normal", "positive") if small else ("small",), ("positive", "small")):
        check = compare_real(program, candidate, work.rng, styles=styles, exact=small)
        if check.witness is not None:
            return _different(work, check.witness, reduced)
        if check.compared:
            break
    else:
        return work.verdict("unknown", NO_VALUES)
    pair = work.pair or field_pair("w31")
    graphs = rewrite_square_radicands(program), rewrite_square_radicands(candidate)
    try:
        done = run_tests(*graphs, pair, 1, work.rng, seconds=LOOK_SECONDS)
    except (NotApplicableError, OutsideLaxError, FieldError):
        return None  # no point where every root exists, or a second exponential: the proof needs neither
    if done.mismatch is not None and not done.opaque:
        return work.verdict(
            "unknown", "a proof and a random test disagree, which is a fault of the workbench: report it"
        )
    work.tests += done.passed
    work.opaque = tuple(dict.fromkeys((*work.opaque, *done.opaque)))
    work.used_pairs = (f"{pair.name} (p={pair.p}, q={pair.q})",)
    shapes = tuple(tensor.shape for tensor in program.inputs)
    work.instances.append(Instance(shapes=shapes, reduced=reduced, tests=done.passed))
    return None


def _is_small(program: KernelGraph) -> bool:
    elements = sum(prod(tensor.shape) for tensor in program.outputs)
    return elements <= SMALL_ELEMENTS and evaluation_work(program) <= SMALL_WORK


def _prove(work: _Comparison, program: KernelGraph, candidate: KernelGraph, *, reduced: bool) -> Verdict | None:
    """Return "equal, proved" or "different" where the exact form decides within its budget, else None."""
    proof = prove_equal(program, candidate, Budget(seconds=PROOF_SECONDS), seed=int(work.rng.integers(2**31)))
    if proof.kind == "refuted" and proof.witness is not None:
        return _different(work, proof.witness, reduced)
    if proof.kind != "proved":
        return None
    contradiction = _contradicted_at_true_shapes(work) if reduced else None
    if contradiction is not None:
        return contradiction
    shapes = tuple(tensor.shape for tensor in program.inputs)
    work.instances.append(Instance(shapes=shapes, reduced=reduced, tests=0, exact=True, cells=proof.cells))
    work.cells += proof.cells
    work.error_bound = 0.0
    where = "at a reduced instance only" if reduced else "at true shapes"
    return work.verdict(
        "equal", f"proved by exact normal form {where}, {counted(proof.elements, 'element')}", proved=True
    )


def _contradicted_at_true_shapes(work: _Comparison) -> Verdict | None:
    """Return "different" where floats show it at true shapes, if that is cheap: cuts may be even at a reduced instance only."""
    cost = max(evaluation_work(work.program), evaluation_work(work.candidate))
    if cost > CHEAP:
        return None
    check = compare_real(work.program, work.candidate, work.rng, exact=2 * cost < 1e6)
    return None if check.witness is None else _different(work, check.witness, reduced=False)


def _agreeing(tests: int) -> str:
    return f"{counted(tests, 'random test')} {'agrees' if tests == 1 else 'agree'}"


def _equal(work: _Comparison, *, at_true: bool, why_not: str, cost: float) -> Verdict:
    bound = work.bound
    if bound is None or work.error_bound is None or work.error_bound >= 1:
        reason = bound.reason if bound and bound.reason else "no bound below 1 is known"
        return work.verdict("unknown", f"{_agreeing(work.tests)}, but {reason}")
    where = "true shapes" if at_true else "reduced shapes only"
    parts = [f"{_agreeing(work.tests)}; {bound.name} bound {work.error_bound:.3g} at {where}"]
    if not at_true:
        parts.append(f"true shapes were not tested ({cost:.2g} multiply-adds; ask for shapes='true')" if cost > MAX_WORK
                     else "true shapes were not tested")  # fmt: skip
    if why_not:
        parts.append(why_not)
    if work.error_bound > work.error:
        parts.append(f"the wanted {work.error:.3g} is not reached with {MAX_TESTS} tests")
    if work.opaque:
        parts.append(f"{', '.join(work.opaque)} taken as random functions")
    if work.cells:
        parts.append(f"{work.cells} cells of piecewise operators decided on the reduced instance")
    return work.verdict("equal", "; ".join(parts))


def _reductions(work: _Comparison) -> tuple[list[tuple[KernelGraph, KernelGraph]], str]:
    pairs: list[tuple[KernelGraph, KernelGraph]] = []
    why = ""
    for ragged in (False, True):
        try:
            pairs.append(joint_reduction(work.program, work.candidate, work.rng, ragged=ragged))
        except NotApplicableError as fault:
            if not ragged:
                why = f"no reduced instance: {fault}"
    return pairs, why


def _smallest(work: _Comparison) -> tuple[KernelGraph, KernelGraph] | None:
    try:
        return joint_reduction(work.program, work.candidate, work.rng, smallest=True)
    except NotApplicableError:
        return None


def _instance(
    work: _Comparison, program: KernelGraph, candidate: KernelGraph, *, reduced: bool, decide: bool
) -> Verdict | None:
    """Test one pair of shapes; returns the verdict if it is not "equal so far"."""
    shapes = tuple(tensor.shape for tensor in program.inputs)
    small = evaluation_work(program) + evaluation_work(candidate) < 1e6
    styles = ("normal", "positive", "rows") if small else ("small",)
    check = compare_real(program, candidate, work.rng, styles=styles, exact=small)
    if check.witness is not None:
        return _different(work, check.witness, reduced)
    if check.compared == 0:
        check = compare_real(program, candidate, work.rng, styles=("positive", "small"), exact=small)
        if check.witness is not None:
            return _different(work, check.witness, reduced)
        if check.compared == 0:
            return work.verdict("unknown", NO_VALUES)
    piecewise = any(features(graph).piecewise for graph in (program, candidate))
    exact, cells = False, 0
    if piecewise and decide:
        proof = prove_equal(program, candidate)
        settled = _pieces(work, proof, reduced)
        if settled is not None:
            return settled
        exact, cells = True, proof.cells
        work.cells += cells
    program, candidate = rewrite_square_radicands(program), rewrite_square_radicands(candidate)
    pair, bound, tests = _plan(work, program, candidate, reduced=reduced)
    try:
        done = run_tests(program, candidate, pair, tests, work.rng)
    except NotApplicableError as fault:
        settled = _prove(work, program, candidate, reduced=reduced)
        return work.verdict("unknown", str(fault)) if settled is None else settled  # "different" is false, not None
    work.tests += done.passed + (done.mismatch is not None)
    work.opaque = tuple(dict.fromkeys((*work.opaque, *done.opaque)))
    if f"{pair.name} (p={pair.p}, q={pair.q})" not in work.used_pairs:
        work.used_pairs = (*work.used_pairs, f"{pair.name} (p={pair.p}, q={pair.q})")
    if done.mismatch is not None:
        return _explain_mismatch(work, program, candidate, small=small, reduced=reduced, opaque=done.opaque)
    passed = done.passed
    if bound.pairs_needed > 1:
        other = field_pair("w61" if pair.name != "w61" else "w31")
        try:
            second = run_tests(program, candidate, other, 1, work.rng)
        except NotApplicableError as fault:
            bound = replace(bound, assumptions=(*bound.assumptions, f"no second pair of primes was tried ({fault})"))
        else:
            work.tests += 1
            if second.mismatch is not None:
                return _explain_mismatch(work, program, candidate, small=small, reduced=reduced, opaque=second.opaque)
            work.used_pairs = tuple(dict.fromkeys((*work.used_pairs, f"{other.name} (p={other.p}, q={other.q})")))
            passed += 1
    work.instances.append(Instance(shapes=shapes, reduced=reduced, tests=passed, exact=exact, cells=cells))
    work.bound, work.error_bound = bound, combined(bound, done.passed)
    return None


def _plan(
    work: _Comparison, program: KernelGraph, candidate: KernelGraph, *, reduced: bool
) -> tuple[FieldPair, Bound, int]:
    """Return field pair, bound and number of tests: one screening test on reduced shapes, else what `error` asks for."""
    pairs: Sequence[FieldPair] = [work.pair] if work.pair else [field_pair("w31"), field_pair("w61")]
    best: tuple[FieldPair, Bound, int] | None = None
    for pair in pairs:
        try:
            bound = bound_per_test(program, candidate, pair)
        except OutsideLaxError as fault:
            bound = Bound(per_test=None, name="", reason=str(fault))
        needed = tests_needed(bound, work.error)
        tests = min(needed, MAX_TESTS) if needed else (2 if bound.per_test is None else MAX_TESTS)
        plan = (pair, bound, tests)
        if (needed is not None and needed <= 3) or bound.reason == NOT_INDEPENDENT:
            return plan
        if best is None or (needed or MAX_TESTS + 1) < (tests_needed(best[1], work.error) or MAX_TESTS + 1):
            best = plan
    assert best is not None
    return best


def _pieces(work: _Comparison, proof: Proof, reduced: bool) -> Verdict | None:
    if proof.kind == "proved":
        return None
    if proof.kind == "refuted" and proof.witness is not None:
        return _different(work, proof.witness, reduced)
    return work.verdict("unknown", f"piecewise operators: {proof.reason}")


def _explain_mismatch(
    work: _Comparison,
    program: KernelGraph,
    candidate: KernelGraph,
    *,
    small: bool,
    reduced: bool,
    opaque: tuple[str, ...],
) -> Verdict | None:
    """A field mismatch: different if a witness over the reals is found with more effort, else unknown."""
    for _ in range(4 if small else 1):
        check = compare_real(program, candidate, work.rng, exact=small)
        if check.witness is not None:
            return _different(work, check.witness, reduced)
    at_true = _is_small(work.program)  # a reduced instance says nothing where constants follow the sizes
    if small or at_true:
        graphs = (work.program, work.candidate) if at_true else (program, candidate)
        settled = _prove(work, *graphs, reduced=reduced and not at_true)
        if settled is not None:
            return settled
    names = f" ({', '.join(opaque)} taken as random functions)" if opaque else ""
    return work.verdict("unknown", f"field only: a random test differs{names}, but no real inputs show a difference")


def _different(work: _Comparison, witness: Witness, reduced: bool) -> Verdict | None:
    """Return "different" with its witness; None where a reduced instance may not stand for the programs.

    A constant that mixes a size with a number (4096 * 1e-6) does not follow when sizes change, and two axes that happen
    to be equally long no longer are. So a difference on a reduced instance must show at true shapes too, or be one that
    rests on neither.
    """
    if reduced and not _stands_for_true_shapes(work):
        check = confirm_at_true_shapes(work.program, work.candidate)
        if check.witness is None and evaluation_work(work.program) < 1e6:
            check = compare_real(work.program, work.candidate, work.rng, exact=True)
        if check.witness is None:
            work.unfaithful = True
            return None
        witness, reduced = check.witness, False
    at = "on a reduced instance" if reduced else "at true shapes"
    return work.verdict("different", f"real inputs {at} give different outputs", witness=witness)


def _stands_for_true_shapes(work: _Comparison) -> bool:
    """Return whether a difference on a reduced instance is one at true shapes, without evaluating there.

    So if the programs state the same numbers and differ on the smallest instance too, where axes that are equally long
    by chance are still equally long; only asked where true shapes take long.
    """
    if max(evaluation_work(work.program), evaluation_work(work.candidate)) <= CHEAP or _constants(
        work.program
    ) != _constants(work.candidate):
        return False
    smallest = _smallest(work)
    return smallest is not None and compare_real(*smallest, work.rng, exact=True).witness is not None


def _constants(graph: KernelGraph) -> frozenset[str]:
    """Return the numbers a program states: constants, factors, bounds, epsilons."""
    found: set[str] = set()
    for node in graph.nodes:
        inner: list[object] = [node] if isinstance(node, OpNode) else list(node.block.nodes)
        for part in inner:
            nodes = part.graph.nodes if isinstance(part, ThreadNode) else (part,)
            for op in nodes:
                if isinstance(op, OpNode):
                    found |= {str(value) for name, value in op.attributes if name in _NUMBERS and value}
                elif isinstance(op, Accumulator) and op.eps:
                    found.add(str(op.eps))
    return frozenset(found)


def _shapes(shapes: Sequence[tuple[int, ...]]) -> str:
    return ", ".join(str(list(shape)) for shape in shapes) or "none"
