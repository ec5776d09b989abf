"""Values of exact expressions at real points: many points in float64 at once, or one point with any number of digits.

Invariant: where an expression has no real value (the root of a negative number, a division by zero) the answer is NaN or
None, never a number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal, DecimalException, InvalidOperation, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.domains.exact_expression import ExactKind, ExactTerms

Floats = npt.NDArray[np.float64]
FloatFunction = Callable[[str, tuple[tuple[str, str], ...], tuple[Floats, ...]], Floats]
"""Value of an opaque operator: name, attributes, arguments."""


def float_values(
    terms: ExactTerms, roots: Sequence[int], variables: Mapping[tuple[int, int], Floats], opaque: FloatFunction
) -> dict[int, Floats]:
    """Return the values of expressions and all they are made of, each of shape (points,), NaN or inf where undefined.

    variables: values of the inputs' elements, shape (points,).
    """
    values: dict[int, Floats] = {}
    points = next(iter(variables.values())).shape if variables else (1,)
    with np.errstate(all="ignore"):
        for part in terms.cone(roots):
            node = terms.nodes[part]
            read = [values[inner] for inner in node.parts]
            match node.kind:
                case ExactKind.NUMBER:
                    value = np.full(points, float(node.number))
                case ExactKind.VARIABLE:
                    value = variables[node.variable]
                case ExactKind.LINEAR:
                    value = np.full(points, float(node.number))
                    for coefficient, array in zip(node.coefficients, read, strict=True):
                        value = value + float(coefficient) * array
                case ExactKind.PRODUCT:
                    value = np.ones(points)
                    for power, array in zip(node.powers, read, strict=True):
                        value = value * (array if power == 1 else array ** float(power))
                case ExactKind.EXP:
                    value = np.exp(read[0])
                case ExactKind.SQRT:
                    value = np.sqrt(read[0])
                case ExactKind.OPAQUE:
                    value = np.asarray(opaque(node.name, node.attributes, tuple(read)), dtype=np.float64)
                case ExactKind.MAX:
                    value = np.maximum.reduce(read)
                case ExactKind.CHOICE:
                    value = np.full(points, np.nan)
                    for piece in reversed(node.pieces):
                        holds = np.ones(points, dtype=bool)
                        for guard in piece.guards:
                            holds &= values[guard] >= 0
                        value = np.where(holds, values[piece.value], value)
            values[part] = value
    return values


def decimal_values(
    terms: ExactTerms,
    roots: Sequence[int],
    variables: Mapping[tuple[int, int], Fraction],
    opaque: FloatFunction,
    digits: int,
) -> tuple[list[Decimal], bool] | None:
    """Return values of expressions at a rational point with about `digits` digits, and whether all digits hold.

    None where an expression, or one that it is made of, has no real value. False where an opaque operator without a
    high-precision rule was evaluated in float64.
    """
    values: dict[int, Decimal] = {}
    precise = True
    context = Context(prec=digits + 12, Emax=10**9, Emin=-(10**9))
    with localcontext(context):
        try:
            for part in terms.cone(roots):
                node = terms.nodes[part]
                read = [values[inner] for inner in node.parts]
                match node.kind:
                    case ExactKind.NUMBER:
                        value = _decimal(node.number)
                    case ExactKind.VARIABLE:
                        value = _decimal(variables[node.variable])
                    case ExactKind.LINEAR:
                        value = _decimal(node.number)
                        for coefficient, each in zip(node.coefficients, read, strict=True):
                            value += _decimal(coefficient) * each
                    case ExactKind.PRODUCT:
                        value = Decimal(1)
                        for power, each in zip(node.powers, read, strict=True):
                            value *= each**power
                    case ExactKind.EXP:
                        value = read[0].exp()
                    case ExactKind.SQRT:
                        value = read[0].sqrt()
                    case ExactKind.OPAQUE:
                        rule = _PRECISE.get(node.name)
                        if rule is not None:
                            value = rule(read)
                        else:
                            precise = False
                            arrays = tuple(np.asarray([float(each)]) for each in read)
                            with np.errstate(all="ignore"):
                                value = Decimal(float(opaque(node.name, node.attributes, arrays)[0]))
                    case ExactKind.MAX:
                        value = max(read)
                    case ExactKind.CHOICE:
                        held = [p for p in node.pieces if all(values[guard] >= 0 for guard in p.guards)]
                        if not held:
                            return None
                        value = values[held[0].value]
                if not value.is_finite():
                    return None
                values[part] = value
        except (DecimalException, ZeroDivisionError, OverflowError):
            return None
    return [values[root] for root in roots], precise


def _decimal(number: Fraction | int) -> Decimal:
    return Decimal(number.numerator) / Decimal(number.denominator)


def _logarithm(arguments: Sequence[Decimal]) -> Decimal:
    if arguments[0] <= 0:
        raise InvalidOperation
    return arguments[0].ln()


def _power(arguments: Sequence[Decimal]) -> Decimal:
    base, exponent = arguments
    if base > 0:
        return (exponent * base.ln()).exp()
    if exponent == exponent.to_integral_value() and (base or exponent > 0):
        return base ** int(exponent)
    raise InvalidOperation


def _error_function(arguments: Sequence[Decimal]) -> Decimal:
    """Return erf(x) by its Taylor series, 2/sqrt(pi) sum (-1)^n x^(2n+1) / (n! (2n+1)); +-1 beyond |x| = 16."""
    (x,) = arguments
    if abs(x) > 16:  # 1 - erf(16) is below 1e-112
        return Decimal(1).copy_sign(x)
    with localcontext() as context:
        context.prec += int(x * x * Decimal("0.87")) + 10  # the largest term is about e^(x^2)
        term, total, n = x, x, 0
        while term and abs(term) > abs(total) * Decimal(10) ** -context.prec:
            n += 1
            term = -term * x * x / n
            total += term / (2 * n + 1)
        return total * 2 / _pi().sqrt()


def _pi() -> Decimal:
    """Return pi with the digits of the context, by Machin's formula."""

    def arccot(n: int) -> Decimal:
        total = power = Decimal(1) / n
        k = 1
        while power:
            power = -power / (n * n)
            step = power / (2 * k + 1)
            if total + step == total:
                break
            total += step
            k += 1
        return total

    return 4 * (4 * arccot(5) - arccot(239))


_PRECISE: dict[str, Callable[[Sequence[Decimal]], Decimal]] = {
    "log": _logarithm,
    "pow": _power,
    "erf": _error_function,
}


def as_float(value: Any) -> float:
    """Return a Decimal or Fraction as the nearest float64, inf where it is too large."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
