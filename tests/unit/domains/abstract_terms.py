"""Random abstract expressions, walks along the axioms, and the fewest operators on a path: shared by the algebra's tests."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workbench.domains import abstract_expr as expr
from workbench.domains.abstract_axioms import AXIOMS, BUILDERS, Axiom, direct_subterms, rewrites_at_root
from workbench.domains.abstract_expr import Axis, Kind, Term

A, B, C = Axis("a"), Axis("b"), Axis("c")
OPERATORS = ("add", "mul", "div", "exp", "sqrt", "sum", "add", "mul", "mul", "sum", "silu")
WITH_MAXIMA = ("add", "mul", "max", "maximum", "add", "maximum", "max", "exp", "sum", "mul")


@dataclass(frozen=True)
class Vocabulary:
    """What random terms are made of: leaves, what reductions run over, and the same without constants."""

    leaves: tuple[Term, ...]
    indices: tuple[int | Axis | tuple[Axis, ...], ...]


SIZES = Vocabulary(
    (*(expr.symbol(name) for name in "XYZ"), expr.constant("1/8"), expr.constant(3)),
    (2, 3, 4, 6),
)
AXES = Vocabulary(
    (
        expr.symbol("X", [A, B]),
        expr.symbol("Y", [B]),
        expr.symbol("Z", [B, C]),
        expr.symbol("U", [A]),
        expr.constant("1/8"),
    ),
    (A, B, C, (A, B)),
)
FORMS = {"sizes": SIZES, "axes": AXES}


def random_term(rng: random.Random, depth: int, words: Vocabulary, operators: Sequence[str] = OPERATORS) -> Term:
    """Return a random term of at most the given depth."""
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(words.leaves)
    operator = rng.choice(operators)
    if operator in BUILDERS:
        count = 1 if operator in ("exp", "sqrt") else 2
        return BUILDERS[operator](*(random_term(rng, depth - 1, words, operators) for _ in range(count)))
    argument = random_term(rng, depth - 1, words, operators)
    if operator == "silu":
        return expr.silu(argument)
    over = rng.choice(words.indices)
    return expr.max_over(over, argument) if operator == "max" else expr.sum_over(over, argument)


def walk(rng: random.Random, term: Term, steps: int, axioms: Sequence[Axiom] = AXIOMS) -> Term:
    """Return an equal term, a number of random axiom uses away (each at a random place)."""
    for _ in range(steps):
        places = list(_places(term, ()))
        rng.shuffle(places)
        for place in places:
            options = list(rewrites_at_root(_at(term, place), axioms))
            if options:
                term = _replaced(term, place, rng.choice(options))
                break
    return term


def _places(term: Term, prefix: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    yield prefix
    for position, arg in enumerate(term.args):
        yield from _places(arg, (*prefix, position))


def _at(term: Term, place: tuple[int, ...]) -> Term:
    for position in place:
        term = term.args[position]
    return term


def _replaced(term: Term, place: tuple[int, ...], new: Term) -> Term:
    if not place:
        return new
    args = list(term.args)
    args[place[0]] = _replaced(args[place[0]], place[1:], new)
    return expr.rebuild(term, tuple(args))


def path_lengths(term: Term) -> dict[Term, int]:
    """Return, for every subterm, the fewest operators on a path from it to the term.

    A sum directly above a product is one operator with it (matmul), consecutive sums are one operator.
    """
    best: dict[Term, int] = {}
    done: set[tuple[Term, bool]] = set()
    order = itertools.count()
    queue = [
        (0, next(order), term, False)
    ]  # operators so far, tie breaker, subterm, whether a sum above is not yet paid
    while queue:
        cost, _, sub, owes = heapq.heappop(queue)
        if (sub, owes) in done:
            continue
        done.add((sub, owes))
        paid = cost + owes
        best[sub] = min(best.get(sub, paid), paid)
        for arg in direct_subterms(sub):
            if sub.kind is Kind.SUM:
                heapq.heappush(queue, (cost, next(order), arg, True))
            elif sub.kind is Kind.MUL:
                heapq.heappush(queue, (cost + 1, next(order), arg, False))
            else:
                heapq.heappush(queue, (paid + 1, next(order), arg, False))
    return best
