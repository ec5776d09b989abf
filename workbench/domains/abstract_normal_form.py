"""Which abstract expressions are equal: a normal form that decides A_eq (paper, table 2) without a time limit.

Invariant: two terms have the same `Value` exactly when A_eq makes them equal, as long as neither is undecided. A value is
a polynomial of atoms with natural coefficients:

- add, mul multiply out; div keeps one denominator per monomial, multiplied out as well; nothing is cancelled;
- exp of a sum is a product of exps, sqrt of a product a product of roots, both held factor by factor, so that "divides"
  is inclusion of multisets; what is left under a root or below a bar has no atom as a factor;
- in the axes form `sum_over` keeps only what varies along its axes and joins sums that share a factor; a sum over an
  axis along which nothing varies is the axis' extent times the summand (so sum over add needs no exception);
- in the paper's form a sum over n is a product with the primes of n, which is what table 2 says and no more.

Beyond table 2, all true over the reals: x * 1 = x; x / c = x * (1/c) for a constant c (constants are symbols otherwise:
2 * 3 is not 6); sqrt(1) = 1; and the laws of max in `abstract_lattice`. Undecided, counted and to be kept by a search:
normal forms past the budget, and sums that may have a common factor which only factorisation would find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import NewType

from workbench.domains import abstract_lattice as lattice
from workbench.domains.abstract_expr import Axis, Kind, Term, close_concats, to_prefix
from workbench.domains.abstract_polynomials import Polynomials
from workbench.domains.abstract_tables import UNIT, Atom, Monomial, TooLargeError, UndecidedError, bits_of
from workbench.errors import UsageError

Value = NewType("Value", int)
ONE = Value(UNIT)
COMMUTATIVE = frozenset({"minimum"})  # opaque functions whose arguments may be exchanged


class Algebra(Polynomials):
    """Normal forms of one search: values are small integers, equal exactly when A_eq makes them equal.

    Attributes: undecided (operations whose normal form was given up; each is an atom of its own), too_large (those of them
    whose normal form is larger than every known one, and so equals none of them).
    """

    def __init__(self, *, max_terms: int = 512, max_weight: int = 12_000) -> None:
        """Raises: ValueError when the budget does not fit the packed counts."""
        super().__init__(max_terms=max_terms, max_weight=max_weight)
        self.undecided = self.too_large = 0
        self._results: dict[tuple[str, int, int, int], Value] = {}
        self._calls: dict[tuple[str, tuple[Value, ...]], Value] = {}
        self._reciprocals: dict[int, int] = {}
        self._normalized: dict[Term, Value] = {}

    # --------------------------------------------------------------------------------------------------- leaves
    def symbol(self, name: str, axes: Sequence[Axis] = ()) -> Value:
        """Return an input tensor with its axes, in the order of its dimensions."""
        return Value(self.atom_polynomial(self.atom(Atom("symbol", name, refs=tuple(map(self.axis_bit, axes))))))

    def constant(self, number: Fraction) -> Value:
        """Return a rational constant."""
        return ONE if number == 1 else Value(self.atom_polynomial(self.atom(Atom("constant", str(number)))))

    # ------------------------------------------------------------------------------------------------- operators
    def add(self, left: Value, right: Value) -> Value:
        """Return the sum."""
        return self._apply("add", *sorted((left, right)))

    def mul(self, left: Value, right: Value) -> Value:
        """Return the product."""
        return self._apply("mul", *sorted((left, right)))

    def div(self, left: Value, right: Value) -> Value:
        """Return the quotient."""
        return self._apply("div", left, right)

    def exp(self, value: Value) -> Value:
        """Return the exponential."""
        return self._apply("exp", value)

    def sqrt(self, value: Value) -> Value:
        """Return the square root."""
        return self._apply("sqrt", value)

    def sum_over(self, axes: Iterable[Axis], value: Value) -> Value:
        """Return the sum over axes."""
        return self.sum_mask(self.axes_mask(axes), value)

    def sum_mask(self, mask: int, value: Value) -> Value:
        """Return the sum over the axes of a mask (see `axes_mask`)."""
        for bit in bits_of(mask):
            value = self._apply("sum", value, parameter=bit)
        return value

    def sum_size(self, size: int, value: Value) -> Value:
        """Return the paper's sum over `size` elements."""
        return self._apply("size", value, parameter=size) if size > 1 else value

    def max_over(self, axes: Iterable[Axis], value: Value) -> Value:
        """Return the maximum along axes."""
        return self.max_mask(self.axes_mask(axes), value)

    def max_mask(self, mask: int, value: Value) -> Value:
        """Return the maximum along the axes of a mask (see `axes_mask`)."""
        for bit in bits_of(mask):
            value = self._apply("max", value, parameter=bit)
        return value

    def max_size(self, size: int, value: Value) -> Value:
        """Return the maximum of `size` elements (paper's form)."""
        return self._apply("peak", value, parameter=size) if size > 1 else value

    def maximum(self, left: Value, right: Value) -> Value:
        """Return the larger operand, element by element."""
        return self._apply("maximum", *sorted((left, right)))

    def apply(self, name: str, *arguments: Value) -> Value:
        """Return an opaque function of the arguments; `maximum` is the lattice operation."""
        if name == "maximum":
            return self.maximum(*arguments)
        key = (name, tuple(sorted(arguments)) if name in COMMUTATIVE else arguments)
        found = self._calls.get(key)
        if found is None:
            atom = Atom("apply", name, refs=key[1])
            try:
                found = Value(self.atom_polynomial(self.atom(atom)))
            except UndecidedError:
                found = self._freeze(name, key[1], 0, 0)
            self._calls[key] = found
        return found

    def _apply(self, name: str, a: Value, b: Value = ONE, *, parameter: int = 0) -> Value:
        key = (name, a, b, parameter)
        found = self._results.get(key)
        if found is None:
            try:
                found = Value(self._rules[name](self, a, parameter if parameter else b))
            except UndecidedError as fault:
                self.too_large += isinstance(fault, TooLargeError)
                operands = (a, b) if name in ("add", "mul", "div", "maximum") else (a,)
                found = self._freeze(name, operands, parameter, parameter if name in ("sum", "max") else 0)
            self._results[key] = found
        return found

    def _freeze(self, name: str, operands: tuple[Value, ...], parameter: int, bound: int) -> Value:
        self.undecided += 1
        return Value(self.atom_polynomial(self.frozen_atom(name, operands, parameter, bound)))

    # --------------------------------------------------------------------------------------------------- the rules
    def _div(self, a: int, b: int) -> int:
        return self.scale(self.reciprocal(b), a)

    def reciprocal(self, p: int) -> int:
        """Return the monomial 1/p."""
        found = self._reciprocals.get(p)
        if found is None:
            atoms, primitive = self.content(p)
            num = tuple(sorted((self.inverse(atom) for atom in atoms if self.is_number(atom)), reverse=True))
            den = tuple(atom for atom in atoms if not self.is_number(atom))
            found = self._reciprocals[p] = self.monomial(Monomial(num, den, primitive))
        return found

    def _exp(self, a: int, _: int) -> int:
        atoms = sorted((self.atom(Atom("exp", ref=m)) for m in self.polynomials[a]), reverse=True)
        return self.polynomial((self.monomial(Monomial(tuple(atoms))),))

    def _sqrt(self, a: int, _: int) -> int:
        atoms, primitive = self.content(a)
        roots = sorted((self.atom(Atom("sqrt", ref=atom)) for atom in atoms), reverse=True)
        return self.polynomial((self.monomial(Monomial(tuple(roots), root=primitive)),))

    def sum_polynomial(self, a: int, axis: int) -> int:
        """Return the sum over one axis. Raises: UndecidedError."""
        return self.polynomial([self._sum_monomial(m, axis) for m in self.polynomials[a]])

    def _sum_monomial(self, m: int, axis: int) -> int:
        fixed, varies = self.split_monomial(m, axis)
        if varies == UNIT:
            total = self.atom(Atom("extent", refs=(axis,)))
        else:
            bound, body = self.open_sums(varies)
            total = self.close_sum(bound | axis, body)
        return self.multiply_monomials(fixed, self.monomial(Monomial((total,))))

    def _size(self, a: int, size: int) -> int:
        factors = tuple(
            sorted((self.atom(Atom("size", ref=prime)) for prime in lattice.prime_factors(size)), reverse=True)
        )
        return self.scale(self.monomial(Monomial(factors)), a)

    _rules: dict[str, Callable[[Algebra, int, int], int]] = {  # noqa: RUF012 (a constant table)
        "add": Polynomials.plus,
        "mul": Polynomials.multiply,
        "div": _div,
        "exp": _exp,
        "sqrt": _sqrt,
        "sum": sum_polynomial,
        "size": _size,
        "max": lattice.max_over,
        "peak": lattice.max_size,
        "maximum": lattice.maximum,
    }

    # --------------------------------------------------------------------------------------------------- questions
    def normalize(self, term: Term) -> Value:
        """Return a term's normal form, in either form. Raises: UsageError for parts that are still concatenated."""
        done = self._normalized
        if term not in done:
            for sub in close_concats(term).subterms():
                if sub not in done:
                    done[sub] = self._normalize_one(sub, [done[arg] for arg in sub.args])
            done[term] = done[close_concats(term)]
        return done[term]

    def _normalize_one(self, term: Term, args: list[Value]) -> Value:
        match term.kind:
            case Kind.SYMBOL:
                return self.symbol(term.name, term.axes)
            case Kind.CONSTANT:
                return self.constant(term.number)
            case Kind.ADD:
                return self.add(*args)
            case Kind.MUL:
                return self.mul(*args)
            case Kind.DIV:
                return self.div(*args)
            case Kind.EXP:
                return self.exp(*args)
            case Kind.SQRT:
                return self.sqrt(*args)
            case Kind.SUM:
                return self.sum_size(term.size, args[0]) if term.size else self.sum_over(term.axes, args[0])
            case Kind.MAX:
                return self.max_size(term.size, args[0]) if term.size else self.max_over(term.axes, args[0])
            case Kind.MAXIMUM:
                return self.maximum(*args)
            case Kind.APPLY:
                return self.apply(term.name, *args)
            case Kind.MARK:
                return args[0]
            case Kind.CONCAT:
                raise UsageError(
                    f"{to_prefix(term)}: no sum over {term.name} joins the parts; take `pieces` and normalise each"
                )

    def free_axes(self, value: Value) -> tuple[Axis, ...]:
        """Return the axes along which a value varies, by name."""
        return self.axes_of(self.mask[value])

    def is_in_loop(self, value: Value) -> bool:
        """Return whether a value changes from one iteration to the next: the loop part of an axis is free in it."""
        return bool(self.mask[value] & self.loop_mask)

    def is_undecided(self, value: Value) -> bool:
        """Return whether the normal form of a value, or of something in it, was given up."""
        return self.frozen[value]
