"""What is searched for: the outputs of a program as abstract expressions over its axes, and what there is to begin with.

Invariant: nothing here depends on names, on the order of the program's nodes, or on extents, only on which computation
it is; an axis has parts only where a search splits it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from workbench.core.shapes import Shape
from workbench.domains import abstract_expr as expr
from workbench.domains.abstract_building import AxesBuilder
from workbench.domains.abstract_expr import Axis, Kind, Term
from workbench.errors import NotApplicableError, UsageError
from workbench.ops.attributes import complete_attributes, fraction, integer
from workbench.ops.registry import operator
from workbench.ops.spec import Attributes, AttributeValue, Dim, Factor, OpKind, OpSpec, as_fraction
from workbench.search.axis_runs import DimNames, Runs, joined, runs_of
from workbench.ugraph.axes import AxisAnalysis, analyze_axes
from workbench.ugraph.kernel_graph import KernelGraph, expect_kernel_graph
from workbench.ugraph.nodes import OpNode

COUNT_FREE = frozenset({"sum", "mean", "max", "sum_to_columns"})
"""Reductions that the search takes as they are."""

_Shaped = tuple[Shape, Fraction | None]


@dataclass(frozen=True, slots=True)
class Start:
    """A program input as the search sees it.

    Attributes: position among the inputs; term; dims: the axes of each dimension; own: the same before factors that run
    together were joined (`axis_runs`), which is how the tensor lies.
    """

    position: int
    term: Term
    dims: tuple[DimNames, ...]
    own: tuple[DimNames, ...]


@dataclass(frozen=True, slots=True)
class Goal:
    """A program output. Attributes: term; dims, own: as of `Start`."""

    term: Term
    dims: tuple[DimNames, ...]
    own: tuple[DimNames, ...]


@dataclass(frozen=True, slots=True)
class AppliedOperator:
    """An operator that the program uses, with its attributes (without the axis) and a constant operand if it has one.

    Attributes: spec; attributes; constant, position: the number that stands at one operand position.
    """

    spec: OpSpec
    attributes: tuple[tuple[str, AttributeValue], ...] = ()
    constant: Fraction | None = None
    position: int = 0


@dataclass(frozen=True, slots=True)
class Problem:
    """A program, ready to be searched.

    Attributes:
        program: the program itself.
        starts, goals: inputs and outputs.
        extents: per axis.
        reduced: the axes that the program folds, in order of appearance.
        numbers: per reduced axis the number that stands for its extent in means (a prime of its own).
        operators: what the program computes with, composites and their parts.
        constants: numbers that the program adds under a root (the eps of norms), sorted.
        ties: axes whose extents follow from others' (of a copied axis, of the parts of a product), by name.
        has_outer_products: whether an elementwise operator of the program broadcasts both operands.
    """

    program: KernelGraph
    starts: tuple[Start, ...]
    goals: tuple[Goal, ...]
    extents: Mapping[str, int]
    reduced: tuple[str, ...]
    numbers: Mapping[str, int]
    operators: tuple[AppliedOperator, ...]
    constants: tuple[Fraction, ...]
    ties: Mapping[str, tuple[str, ...]]
    has_outer_products: bool = False


def problem_of(program: KernelGraph) -> Problem:
    """Return a program as expressions.

    Raises: UsageError for a program that is not made of predefined operators; NotApplicableError for one with concat or
    split (see `pieces`).
    """
    expect_kernel_graph(program, "searched for")
    if program.graph_defined:
        raise UsageError(
            f"{program.name or 'the program'} has graph-defined operators; a search starts from predefined operators only"
        )
    return _Reader(program).read()


class _Reader:
    """Builds the expression of every tensor."""

    def __init__(self, program: KernelGraph) -> None:
        self.program = program
        self.analysis: AxisAnalysis = analyze_axes(program)
        self.numbers: dict[str, int] = {}
        self.reduced: dict[str, None] = {}
        self.terms: dict[str, Term] = {}
        self.literals: dict[str, Fraction] = {}
        self.dropped = self._broadcast_axes()
        self.runs: Runs = runs_of(program, self.analysis, self._factors)
        self.has_outer_products = False
        self._primes = _large_primes()

    def read(self) -> Problem:
        starts = []
        for position, tensor in enumerate(self.program.inputs):
            own = self._factors(self.analysis.dims(tensor.name))
            dims = joined(own, self.runs)
            term = expr.symbol(f"in{position}", [Axis(name) for dim in dims for name in dim])
            self.terms[tensor.name] = term
            starts.append(Start(position, term, dims, own))
        for node in self.program.nodes:
            assert isinstance(node, OpNode)
            self._node(node)
        goals = tuple(
            Goal(self.terms[tensor.name], joined(own, self.runs), own)
            for tensor in self.program.outputs
            for own in [self._factors(self.analysis.dims(tensor.name))]
        )
        starts += self._copied_inputs(starts, goals)
        return Problem(
            self.program,
            tuple(starts),
            goals,
            self._extents(),
            tuple(self.reduced),
            self._numbers_of(goals),
            self._operators(),
            self._constants_under_roots(goals),
            self._ties(),
            self.has_outer_products,
        )

    # ---------------------------------------------------------------------------------------------------------- axes
    def _factors(self, dims: Iterable[Sequence[str]]) -> tuple[DimNames, ...]:
        """Return the axes of each dimension, products taken apart, without axes of extent 1 that are broadcast."""
        found = []
        for dim in dims:
            names: list[str] = []
            for name in dim:
                names += self.analysis.axes[name].parts or (name,)
            found.append(tuple(name for name in names if name not in self.dropped))
        return tuple(found)

    def _broadcast_axes(self) -> frozenset[str]:
        """Return the axes of extent 1 that are no axes: an operator broadcasts or drops them, or no input has them.

        Any other is an axis like every one: with one head there are the structures that there are with eight.
        """
        analysis = self.analysis
        unit = {name for name, axis in analysis.axes.items() if axis.extent == 1}
        if not unit:
            return frozenset()
        kept = {name for tensor in self.program.inputs for dim in analysis.dims(tensor.name) for name in dim}
        dropped = unit - kept
        for node in self.program.nodes:
            assert isinstance(node, OpNode)
            path = (node.results[0].name,)
            after = {name for result in node.results for dim in analysis.dims(result.name) for name in dim}
            for position in range(len(node.operands)):
                seen = {name for dim in analysis.operands.get((path, position), ()) for name in dim}
                dropped |= {name for name in (seen - after) & unit if path not in analysis.axes[name].reduced_by}
        return frozenset(dropped)

    def _extents(self) -> dict[str, int]:
        extents = {name: axis.extent for name, axis in self.analysis.axes.items()}
        joint = {name: prod(extents[factor] for factor in factors) for factors, name in self.runs.values()}
        return extents | joint

    def _ties(self) -> dict[str, tuple[str, ...]]:
        """Return per axis the axes whose extents make up its own, in an order in which each follows those it needs."""
        found = {name: factors for factors, name in self.runs.values()}
        for name, axis in self.analysis.axes.items():
            if axis.copy_of:
                original = self._original(name)
                if original != name:
                    found[name] = (original,)
            elif axis.parts:
                found[name] = axis.parts
        return found

    def _original(self, name: str) -> str:
        """Return what an axis is a copy of in the end; of axes that are copies of each other, the first."""
        chain = [name]
        while (source := self.analysis.axes[chain[-1]].copy_of) and source not in chain:
            chain.append(source)
        circle = chain[chain.index(source) :] if source else chain[-1:]
        return next(axis for axis in self.analysis.axes if axis in circle)

    def _number(self, names: Iterable[str]) -> int:
        result = 1
        for name in names:
            if name not in self.numbers:
                self.numbers[name] = next(self._primes)
            result *= self.numbers[name]
        return result

    # --------------------------------------------------------------------------------------------------------- terms
    def _node(self, node: OpNode) -> None:
        path = (node.results[0].name,)
        if node.op in ("concat", "split"):
            raise NotApplicableError(f"{node.op} {path[0]}: a program is taken apart (`pieces`) before it is read")
        if node.op == "constant":
            value = fraction(node.attribute_map, "value")
            self.literals[node.results[0].name] = value
            self.terms[node.results[0].name] = expr.constant(value)
            return
        shapes = tuple(self.program.tensor(name).shape for name in node.operands)
        seen = [self._factors(self.analysis.operands[path, position]) for position in range(len(shapes))]
        terms = tuple(
            self._as_seen(self.terms[name], name, dims) for name, dims in zip(node.operands, seen, strict=True)
        )
        if node.spec.kind is OpKind.ELEMENTWISE and len(seen) > 1:
            axes = [frozenset(name for dim in dims for name in dim) for dims in seen]
            self.has_outer_products |= not any(one >= frozenset().union(*axes) for one in axes)
        axis_map = node.spec.axes(shapes, node.attribute_map)
        groups = [self._group(group[0], seen) for group in axis_map.reduced]
        for group in groups:
            self.reduced.update(dict.fromkeys(group))
        if node.spec.kind is OpKind.REDUCTION and node.op not in ("sum", "max", "sum_to_columns"):
            shapes = tuple(self._with_number(shape, node.attribute_map, groups[0]) for shape in shapes)
        self.terms[node.results[0].name] = node.spec.abstract(self._builder(groups), terms, shapes, node.attribute_map)

    def _builder(self, groups: Sequence[Sequence[str]]) -> AxesBuilder:
        return AxesBuilder([[Axis(name) for name in group] for group in groups])

    def _group(self, member: Dim | Factor, seen: Sequence[tuple[DimNames, ...]]) -> DimNames:
        dim = member if isinstance(member, Dim) else member.dim
        names = seen[dim.operand][dim.axis]
        if isinstance(member, Factor):
            names = names[member.position : member.position + 1]
        (result,) = joined([names], self.runs) or ((),)
        return result

    def _with_number(self, shape: tuple[int, ...], attributes: Attributes, group: Sequence[str]) -> tuple[int, ...]:
        axis = integer(attributes, "axis") if "axis" in attributes else -1
        changed = list(shape)
        changed[axis] = self._number(group)
        return tuple(changed)

    def _as_seen(self, term: Term, name: str, seen: tuple[DimNames, ...]) -> Term:
        """Return an operand's expression with its axes named as the operator sees them (X in X @ X^T)."""
        own = self._factors(self.analysis.dims(name)) if name not in self.literals else ()
        pairs = {
            Axis(old): Axis(new)
            for dim, other in zip(joined(own, self.runs), joined(seen, self.runs), strict=False)
            for old, new in zip(dim, other, strict=False)
            if old != new
        }
        return expr.rename_axes(term, pairs) if pairs else term

    def _copied_inputs(self, starts: Sequence[Start], goals: Sequence[Goal]) -> list[Start]:
        """Return inputs under the other axes that some use of them shows."""
        known = {start.term: start for start in starts}
        by_name = {start.term.name: start for start in starts}
        result = []
        for goal in goals:
            for sub in goal.term.subterms():
                if sub.kind is Kind.SYMBOL and sub not in known and sub.name in by_name:
                    base = by_name[sub.name]
                    names = dict(
                        zip((axis.name for axis in base.term.axes), (axis.name for axis in sub.axes), strict=True)
                    )
                    dims = tuple(tuple(names[name] for name in dim) for dim in base.dims)
                    own = tuple(tuple(names.get(name, name) for name in dim) for dim in base.own)
                    known[sub] = Start(base.position, sub, dims, own)
                    result.append(known[sub])
        return result

    # ----------------------------------------------------------------------------------------------------- operators
    def _operators(self) -> tuple[AppliedOperator, ...]:
        """Return what the program computes with, composites before their parts."""
        parts = _PartsOfComposites()
        for node in self.program.nodes:
            assert isinstance(node, OpNode)
            shapes = tuple(self.program.tensor(name).shape for name in node.operands)
            numbers = [self.literals.get(name) for name in node.operands]
            parts.note(node.spec, node.attribute_map, numbers)
            if node.spec.kind is OpKind.REDUCTION and node.spec.expand is not None and node.op not in COUNT_FREE:
                operands = tuple((shape, None) for shape in shapes)
                node.spec.expand(parts, operands, shapes, node.attribute_map)
        return tuple(parts.found)

    def _numbers_of(self, goals: Sequence[Goal]) -> dict[str, int]:
        """Return the extents that occur in a goal as numbers, that is in its means."""
        found = {sub.number.denominator for goal in goals for sub in goal.term.subterms() if sub.kind is Kind.CONSTANT}
        return {name: number for name, number in self.numbers.items() if any(d % number == 0 for d in found)}

    def _constants_under_roots(self, goals: Sequence[Goal]) -> tuple[Fraction, ...]:
        found: set[Fraction] = set()
        for goal in goals:
            for sub in goal.term.subterms():
                if sub.kind is Kind.SQRT and sub.args[0].kind is Kind.ADD:
                    found.update(arg.number for arg in sub.args[0].args if arg.kind is Kind.CONSTANT)
        return tuple(sorted(found))


def split_axes(term: Term, parts: Mapping[Axis, Sequence[Axis]]) -> Term:
    """Return a term with axes replaced by their parts: X[b, h] -> X[b, h.l, h.t], sum_h -> sum over both parts.

    An axis without parts is taken to have one element: symbols lose it, and sums over it are their operand.
    """

    def change(sub: Term) -> Term:
        if not any(axis in parts for axis in sub.axes):
            return sub
        axes = [part for axis in sub.axes for part in parts.get(axis, (axis,))]
        match sub.kind:
            case Kind.SYMBOL:
                return expr.symbol(sub.name, axes)
            case Kind.SUM:
                return expr.sum_over(axes, sub.args[0])
            case Kind.MAX:
                return expr.max_over(axes, sub.args[0])
        raise UsageError(f"{sub.kind.value} has axes of its own that cannot be split")

    return expr.map_terms(term, change)


class _PartsOfComposites:
    """An `Apply` over (shape, number) pairs that notes the operators which norms and softmaxes are made of."""

    def __init__(self) -> None:
        self.found: dict[AppliedOperator, None] = {}

    def __call__(self, name: str, *operands: _Shaped, **attributes: AttributeValue) -> _Shaped:
        spec = operator(name)
        shapes = tuple(shape for shape, _ in operands)
        complete = complete_attributes(spec, attributes, shapes)
        if spec.kind is OpKind.CONSTANT:
            return (), as_fraction(complete["value"])
        self.note(spec, complete, [number for _, number in operands])
        if spec.kind is OpKind.REDUCTION and spec.expand is not None and name not in COUNT_FREE:
            return spec.expand(self, operands, shapes, complete)
        return spec.infer_shapes(shapes, complete)[0], None

    def note(self, spec: OpSpec, attributes: Attributes, numbers: Sequence[Fraction | None]) -> None:
        """Keep an operator that computes something; numbers: per operand its constant value, None for a tensor."""
        if spec.kind in (OpKind.MOVEMENT, OpKind.CONSTANT):
            return
        kept = tuple(sorted((name, value) for name, value in attributes.items() if name != "axis"))
        literal = [(position, number) for position, number in enumerate(numbers) if number is not None]
        if not literal:
            self.found[AppliedOperator(spec, kept)] = None
        elif len(literal) < len(numbers):
            self.found[AppliedOperator(spec, kept, literal[0][1], literal[0][0])] = None


def _large_primes() -> Iterator[int]:
    """Yield primes above every extent that a program is likely to name, so that none is mistaken for a constant."""
    number = 1_000_003
    while True:
        if all(number % divisor for divisor in range(3, int(number**0.5) + 1, 2)):
            yield number
        number += 2
