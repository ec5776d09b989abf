"""A brute-force oracle for theorem 1, in a few lines that share nothing with the search: every graph, told by values.

A graph is a set of operators on the inputs, closed under operands, in which one result is read by nothing: the output.
All sets up to a size are built in breadth, without any order or expression. Each tensor carries three numbers per
element: the real value, which decides whether a graph computes the program, and two of a model of A_eq in which nothing
cancels: positive reals where 1/y is y^c, sqrt is x^a, both with the two numbers exchanged in one of them, so that they do
not commute; powers are multiplicative and exp of a linear map turns sums into products, so every axiom of table 2
holds, and x * y / y is not x. Equal numbers at random points mean equal expressions under A_eq (up to chance).
"""

from __future__ import annotations

import math
import random
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

FIXED, LOOP, AFTER = "fixed", "loop", "after"
SIZES = {"b": 3, "h": 5, "d": 7, "e": 11}
"""Extents at which programs are written: all different, so that a shape tells the axes."""

_POINT = {"b": 3, "h": 3, "d": 2, "e": 2, "loop": 2}
"""Extents at which values are computed; the looped axis has a part of its own."""

Array = NDArray[np.float64]
Key = Hashable


@dataclass(frozen=True)
class Program:
    """A program: inputs (name -> axes), nodes (operator, operands, folded axis) in order, the last is the output."""

    inputs: dict[str, str]
    nodes: tuple[tuple[str, tuple[str, ...], str], ...]

    def __str__(self) -> str:
        """Return it in one line."""
        named = ", ".join(f"{name}[{axes}]" for name, axes in self.inputs.items())
        lines = [
            f"t{n} = {op}({', '.join(args)}{' over ' + axis if axis else ''})"
            for n, (op, args, axis) in enumerate(self.nodes)
        ]
        return f"{named}: " + "; ".join(lines)


@dataclass(eq=False, slots=True)
class Term:
    """A tensor: number, operator, operands, folded axes, axes, stage; its value (3 numbers per element) once asked for."""

    number: int
    operator: str
    operands: tuple[Term, ...]
    folded: frozenset[str]
    axes: frozenset[str]
    stage: str
    name: str = ""
    value: Array | None = None
    print: tuple[int, ...] = ()


def random_program(rng: random.Random, operators: int) -> Program | None:
    """Return a program of so many operators in which every operator and input is used; None if none came about."""
    inputs = rng.choice(
        [
            {"X": "bh", "W": "hd"}, {"X": "bh", "Y": "bh"}, {"X": "bh", "G": "h"}, {"X": "bh", "W": "hd", "Y": "bh"},
            {"X": "bh", "W": "hd", "Z": "bd"}, {"X": "bh"}, {"X": "bh", "W": "hd", "G": "h"},
        ]
    )  # fmt: skip
    shapes: dict[str, tuple[str, str]] = {}
    for _ in range(300):
        shapes = {name: ("", axes) if len(axes) == 1 else (axes[0], axes[1]) for name, axes in inputs.items()}
        nodes: list[tuple[str, tuple[str, ...], str]] = []
        has_exp: set[str] = set()
        for number in range(operators):
            made = _random_node(rng, shapes, has_exp)
            if made is None:
                break
            node, shape, exps = made
            nodes.append(node)
            shapes[f"t{number}"] = shape
            if exps:
                has_exp.add(f"t{number}")
        used = {operand for _, operands, _ in nodes for operand in operands}
        if len(nodes) == operators and used == set(shapes) - {f"t{operators - 1}"} and any(n[2] for n in nodes):
            return Program(dict(inputs), tuple(nodes))
    return None


_Node = tuple[tuple[str, tuple[str, ...], str], tuple[str, str], bool]


def _random_node(rng: random.Random, shapes: dict[str, tuple[str, str]], has_exp: set[str]) -> _Node | None:
    op = rng.choice(["matmul", "matmul", "sum", "sum", "add", "mul", "div", "exp", "square", "sqrt"])
    names = list(shapes)
    one, two = rng.choice(names), rng.choice(names)
    rows, columns = shapes[one]
    exps = one in has_exp or two in has_exp
    match op:
        case "exp" if one in has_exp:
            return None
        case "exp" | "square" | "sqrt":
            return (op, (one,), ""), shapes[one], op == "exp" or one in has_exp
        case "sum":
            axis = rng.choice([axis for axis in (rows, columns) if axis] or [""])
            if not axis:
                return None
            left = ("", columns) if axis == rows else (rows, "")
            return (op, (one,), axis), left, one in has_exp
        case "matmul":
            if not columns or shapes[two][0] != columns or not (rows or shapes[two][1]) or one == "G":
                return None  # G is a vector, and a matrix product takes none
            return (op, (one, two), columns), (rows, shapes[two][1]), exps
    first, second = {*shapes[one]} - {""}, {*shapes[two]} - {""}
    pairs = list(zip(shapes[one], shapes[two], strict=True))
    if one == two or not (first <= second or second <= first) or any(a and b and a != b for a, b in pairs):
        return None
    return (op, (one, two), ""), (pairs[0][0] or pairs[0][1], pairs[1][0] or pairs[1][1]), exps


class Oracle:
    """All graphs of one program in one block graph that loops over one axis, or over none."""

    def __init__(self, program: Program, loop: str | None, seed: int) -> None:
        """Draw a random point."""
        self.program, self.loop = program, loop
        rng = np.random.default_rng(seed)
        self.axes = ["b", "h", "d", "e", "loop"]
        self.powers = rng.uniform(0.6, 1.7, 4)
        self.linear = rng.uniform(0.1, 0.4, (2, 2))
        self.weights = np.concatenate([np.ones((1, 5)), rng.uniform(0.6, 1.7, (2, 5))])
        self.terms: dict[Hashable, Term] = {}
        self.starts = [self._start(name, axes, rng) for name, axes in program.inputs.items()]
        self.functions = ("exp", "square", "sqrt")
        self.goal_axes, self.goal = self._goal()
        self.goal_print = _print(self.goal)

    def _parts(self, axes: Iterable[str]) -> frozenset[str]:
        return frozenset(part for axis in axes for part in ((axis, "loop") if axis == self.loop else (axis,)))

    def _start(self, name: str, axes: str, rng: np.random.Generator) -> Term:
        parts = self._parts(axes)
        shape = [_POINT[axis] if axis in parts else 1 for axis in self.axes]
        stage = LOOP if "loop" in parts else FIXED
        made = Term(len(self.terms), "in", (), frozenset(), parts, stage, name, rng.uniform(0.4, 1.2, (3, *shape)))
        self.terms[name] = made
        return made

    def _goal(self) -> tuple[frozenset[str], Array]:
        """Return what the program computes, by the same arithmetic; folds of the looped axis fold both parts."""
        made = {term.name: (term.axes, self.value(term)) for term in self.starts}
        for number, (op, operands, axis) in enumerate(self.program.nodes):
            parts = self._parts(axis)
            axes = frozenset().union(*(made[name][0] for name in operands)) - parts
            made[f"t{number}"] = axes, self._compute(op, [made[name][1] for name in operands], parts)
        return made[f"t{len(self.program.nodes) - 1}"]

    def value(self, term: Term) -> Array:
        """Return a tensor's numbers."""
        if term.value is None:
            term.value = self._compute(term.operator, [self.value(operand) for operand in term.operands], term.folded)
        return term.value

    def print(self, term: Term) -> tuple[int, ...]:
        """Return a tensor's numbers in the model, rounded."""
        if not term.print:
            term.print = _print(self.value(term))
        return term.print

    def _compute(self, op: str, values: list[Array], folded: Iterable[str]) -> Array:
        at = [self.axes.index(part) for part in sorted(folded)]
        x, y = values[0], values[-1]
        with np.errstate(all="ignore"):
            match op:
                case "add":
                    result: Array = x + y
                case "mul" | "square":
                    result = x * y
                case "div":
                    result = x * np.stack([1 / y[0], y[2] ** self.powers[0], y[1] ** self.powers[1]])
                case "sqrt":
                    result = np.stack([np.sqrt(x[0]), x[2] ** self.powers[2], x[1] ** self.powers[3]])
                case "exp":
                    result = np.stack([np.exp(x[0]), *(np.exp(row[0] * x[1] + row[1] * x[2]) for row in self.linear)])
                case _:  # a sum may be weighted: no axiom knows by what
                    weight = np.prod(self.weights[:, at], axis=1).reshape(3, 1, 1, 1, 1, 1)
                    summand: Array = x * y if op == "matmul" else x
                    result = summand.sum(axis=tuple(1 + axis for axis in at), keepdims=True) * weight
        return result

    def _made(self, op: str, operands: tuple[Term, ...], folded: frozenset[str], stage: str) -> Term:
        numbers = [term.number for term in operands]
        if op in ("add", "mul", "matmul"):
            numbers.sort()
        key = (op, folded, *numbers)
        found = self.terms.get(key)
        if found is None:
            axes = frozenset().union(*(term.axes for term in operands)) - folded
            found = self.terms[key] = Term(len(self.terms), op, operands, folded, axes, stage)
        return found

    # ----------------------------------------------------------------------------------------------------- operators
    def applications(self, tensors: list[Term], loose: list[Term], needed: int) -> Iterator[Term]:
        """Yield every operator on tensors of a graph that reads at least so many of those that nothing reads."""
        for one in tensors:
            if needed < (2 if one in loose else 1):
                yield from self._singles(one)
        for place, one in enumerate(tensors):
            is_loose = one in loose
            for two in tensors[: place + 1]:
                if is_loose + (two in loose and two is not one) >= needed:
                    yield from self._pairs(one, two)

    def _singles(self, one: Term) -> Iterator[Term]:
        for op in self.functions:
            yield self._made(op, (one,), frozenset(), one.stage)
        for axis in sorted(one.axes - {"loop"}):
            yield self._made("sum", (one,), frozenset({axis}), one.stage)
        if one.stage == LOOP:
            yield self._made("acc", (one,), frozenset({"loop"}), AFTER)
            for axis in sorted(one.axes - {"loop"}):  # it may take a sum over what a block holds along
                yield self._made("acc", (one,), frozenset({"loop", axis}), AFTER)

    def _pairs(self, one: Term, two: Term) -> Iterator[Term]:
        stages = {one.stage, two.stage}
        if stages == {LOOP, AFTER}:
            return
        stage = LOOP if LOOP in stages else AFTER if AFTER in stages else FIXED
        if one.axes <= two.axes or two.axes <= one.axes:
            yield self._made("add", (one, two), frozenset(), stage)
            if one is not two:
                yield self._made("mul", (one, two), frozenset(), stage)
                yield self._made("div", (two, one), frozenset(), stage)
            yield self._made("div", (one, two), frozenset(), stage)
        if one.axes != two.axes:
            for axis in sorted((one.axes & two.axes) - {"loop"}):
                yield self._made("matmul", (one, two), frozenset({axis}), stage)

    # -------------------------------------------------------------------------------------------------------- graphs
    def graphs(self, limit: int) -> Iterator[tuple[int, frozenset[Term], Term]]:
        """Yield (size, operators, output) of every graph up to a size whose output computes the program."""
        states: set[frozenset[Term]] = {frozenset()}
        for size in range(1, limit + 1):
            following: set[frozenset[Term]] = set()
            for state in states:
                read = {operand for term in state for operand in term.operands}
                loose = [term for term in state if term not in read]
                needed = len(loose) - (limit - size)
                for term in self.applications([*self.starts, *state], loose, needed):
                    if term in state:
                        continue
                    left = sum(other not in term.operands for other in loose)
                    if not left and term.axes == self.goal_axes and term.stage != LOOP and self._is_equal(term):
                        yield size, state | {term}, term
                    if size < limit and left <= limit - size:
                        following.add(state | {term})
            states = following

    def _is_equal(self, term: Term) -> bool:
        return bool(np.allclose(self.value(term)[0], self.goal[0], rtol=1e-9, atol=0))

    def is_same_expression(self, term: Term) -> bool:
        """Return whether the output equals the program under A_eq, by the model."""
        return self.print(term) == self.goal_print

    def has_equal_tensors(self, state: frozenset[Term]) -> bool:
        """Return whether two tensors of a graph, inputs included, have equal expressions."""
        prints = [self.print(term) for term in (*self.starts, *state)]
        return len(set(prints)) < len(prints)

    def accumulates(self, state: frozenset[Term]) -> bool:
        """Return whether a graph that loops has an accumulator."""
        return self.loop is None or any(term.operator == "acc" for term in state)

    def key(self, term: Term) -> Key:
        """Return a tensor as nested tuples; a sum that an accumulator takes along is written as an operator of its own."""
        if term.operator == "in":
            return ("in", term.name)
        inner = [self.key(operand) for operand in term.operands]
        if term.operator in ("add", "mul", "matmul"):
            inner.sort(key=repr)
        folded = sorted(term.folded - {"loop"})
        if term.operator == "acc":
            return ("acc", ("sum", *folded, *inner) if folded else inner[0])
        return (term.operator, *folded, *inner)


def _print(value: Array) -> tuple[int, ...]:
    """Return a value of the model, rounded, with its shape: equal ones print equally."""
    digits = []
    for x in value[1:].ravel():
        if not math.isfinite(x) or x <= 0:
            return (id(value),)
        digits.append(round(math.log(x) * 1e8))
    return (*value.shape, *digits)


@dataclass
class Found:
    """What the oracle has for a program.

    Attributes: sizes: (loop, canonical output) -> fewest operators, of graphs that must be found; cancelled: graphs
    that compute the program and are not equal to it under A_eq; repeated: that are, with two tensors of equal expression.
    """

    sizes: dict[tuple[str | None, Key], int] = field(default_factory=dict)
    cancelled: int = 0
    repeated: int = 0


def find(program: Program, loops: Iterable[str | None], limit: int, seed: int = 0) -> Found:
    """Return what brute force finds up to a size."""
    found = Found()
    for loop in loops:
        oracle = Oracle(program, loop, seed)
        for size, state, output in oracle.graphs(limit):
            if not oracle.accumulates(state):
                continue
            if not oracle.is_same_expression(output):
                found.cancelled += 1
            elif oracle.has_equal_tensors(state):
                found.repeated += 1
            else:
                key = (loop, oracle.key(output))
                found.sizes[key] = min(size, found.sizes.get(key, size))
    return found
