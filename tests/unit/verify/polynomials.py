"""Polynomials multiplied out, as an oracle for bounds on degrees and heights: programs run on arrays of them."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import lcm

import numpy as np
import numpy.typing as npt

from workbench.interpret.floats import FloatDomain
from workbench.interpret.walk import walk
from workbench.ugraph.kernel_graph import KernelGraph

Monomial = tuple[tuple[tuple[int, ...], int], ...]


class Polynomial:
    """A polynomial in input elements: monomial -> coefficient. Works under + - * with polynomials and numbers."""

    __array_priority__ = 1000

    def __init__(self, terms: Mapping[Monomial, Fraction]) -> None:
        self.terms = {monomial: c for monomial, c in terms.items() if c}

    @staticmethod
    def of(value: object) -> Polynomial:
        if isinstance(value, Polynomial):
            return value
        assert isinstance(value, int | float | Fraction)
        return Polynomial({(): Fraction(value).limit_denominator(10**6)})  # the float of a fraction that small

    @staticmethod
    def variable(tensor: int, index: tuple[int, ...]) -> Polynomial:
        return Polynomial({(((tensor, *index), 1),): Fraction(1)})

    def __add__(self, other: object) -> Polynomial:
        terms = dict(self.terms)
        for monomial, c in Polynomial.of(other).terms.items():
            terms[monomial] = terms.get(monomial, Fraction(0)) + c
        return Polynomial(terms)

    def __mul__(self, other: object) -> Polynomial:
        terms: dict[Monomial, Fraction] = {}
        for left, c in self.terms.items():
            for right, d in Polynomial.of(other).terms.items():
                powers = dict(left)
                for variable, power in right:
                    powers[variable] = powers.get(variable, 0) + power
                monomial = tuple(sorted(powers.items()))
                terms[monomial] = terms.get(monomial, Fraction(0)) + c * d
        return Polynomial(terms)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Polynomial:
        return self * -1

    def __sub__(self, other: object) -> Polynomial:
        return self + -Polynomial.of(other)

    def __rsub__(self, other: object) -> Polynomial:
        return Polynomial.of(other) - self

    def __truediv__(self, number: int) -> Polynomial:
        return self * (1 / Fraction(int(number)))

    @property
    def degree(self) -> int:
        return max((sum(power for _, power in monomial) for monomial in self.terms), default=0)

    @property
    def denominator(self) -> int:
        return lcm(*(c.denominator for c in self.terms.values()))


def expand(graph: KernelGraph) -> list[npt.NDArray[np.object_]]:
    """Return the outputs of a program without quotients, roots and exponentials, multiplied out."""
    inputs = []
    for number, tensor in enumerate(graph.inputs):
        array = np.empty(tensor.shape, dtype=object)
        for index in np.ndindex(*tensor.shape):
            array[index] = Polynomial.variable(number, index)
        inputs.append(array)
    return [np.asarray(output, dtype=object) for output in walk(graph, inputs, FloatDomain())]
