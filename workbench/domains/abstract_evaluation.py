"""What an abstract expression is worth where every input is constant: the bridge from terms to float64.

Invariant: on tensors whose elements are all equal it does not matter which element is which, so a term must give what
the program gives; this separates wrong extents and dropped factors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from workbench.domains.abstract_expr import Axis, Kind, Term, close_concats, to_prefix
from workbench.errors import UsageError

FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "silu": lambda x: x / (1 + math.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "tanh": math.tanh,
    "erf": math.erf,
    "log": math.log,
    "pow": math.pow,
    "relu": lambda x: max(x, 0.0),
    "abs": abs,
    "minimum": min,
    "clamp": lambda x, low, high: min(max(x, low), high),
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
}


def evaluate(
    term: Term,
    numbers: Mapping[str, float],
    extents: Mapping[Axis, int],
    functions: Mapping[str, Callable[..., float]] = FUNCTIONS,
) -> float:
    """Return the value where every input is constant: all its elements are `numbers[name]`.

    Then it does not matter which element is which, and the term must give what the program gives in float64.
    Raises: UsageError for an input, an extent or a function that is not given.
    """
    closed = close_concats(term)
    known: dict[int, float] = {}
    for sub in closed.subterms():
        args = [known[id(arg)] for arg in sub.args]
        try:
            known[id(sub)] = _evaluate_one(sub, args, numbers, extents, functions)
        except KeyError as error:
            raise UsageError(f"{to_prefix(sub)}: no value given for {error.args[0]!s}") from error
    return known[id(closed)]


def _evaluate_one(
    term: Term,
    args: list[float],
    numbers: Mapping[str, float],
    extents: Mapping[Axis, int],
    functions: Mapping[str, Callable[..., float]],
) -> float:
    match term.kind:
        case Kind.SYMBOL:
            return numbers[term.name]
        case Kind.CONSTANT:
            return float(term.number)
        case Kind.ADD:
            return args[0] + args[1]
        case Kind.MUL:
            return args[0] * args[1]
        case Kind.DIV:
            return args[0] / args[1]
        case Kind.EXP:
            return math.exp(args[0])
        case Kind.SQRT:
            return math.sqrt(args[0])
        case Kind.SUM:
            return args[0] * (term.size or math.prod(extents[axis] for axis in term.axes))
        case Kind.MAX | Kind.MARK:
            return args[0]
        case Kind.MAXIMUM:
            return max(args)
        case Kind.APPLY:
            return functions[term.name](*args)
        case Kind.CONCAT:
            if len(set(args)) > 1:
                raise UsageError(f"{to_prefix(term)}: the parts differ, so the value is not one number")
            return args[0]
