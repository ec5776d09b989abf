"""How a rule of an operator record can be broken: one generator of mutants per field of the record.

A mutant that means the same as the original says why and is counted apart; the reason is judged by the tests' oracle or
by the rule's kind, never by whether the mutant was noticed. Long because it has one generator per field of the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeVar

import numpy as np

from benchmarks.mutants import Mutant
from tests.conformance.operator_checks import has_compiler
from tests.conformance.operator_checks.cases import CASES, Case, operands_of, oracle
from workbench.core.shapes import Shape
from workbench.domains.finite_field import FieldArithmetic, FieldValue
from workbench.domains.work import Work
from workbench.ops.broadcasting import FloatRule, WorkRule
from workbench.ops.spec import (
    AbstractRule,
    Apply,
    Array,
    Attribute,
    Attributes,
    AxisMap,
    Branch,
    Concatenated,
    Dim,
    DimSource,
    Exact,
    Expansion,
    Factor,
    FieldMeaning,
    Guards,
    Homogeneity,
    Law,
    OpKind,
    OpSpec,
    Piece,
    Product,
    Regrouped,
    Same,
    TermAlgebra,
)

T = TypeVar("T")
ExactRule = Callable[[FieldArithmetic, tuple[FieldValue, ...], Attributes], FieldValue]
PieceRule = Callable[[FieldArithmetic, tuple[FieldValue, ...], Attributes, Array], FieldValue]
SWAPPED, DOUBLED, HALVED, PLUS_ONE, CONSTANT = (
    "operands swapped",
    "factor doubled",
    "factor dropped",
    "off by one",
    "a constant",
)


# ------------------------------------------------------------------------------------------------- mutations per rule
def _reversed_operands(spec: OpSpec) -> bool:
    return spec.arity is None or spec.arity > 1


def mutate_shape(spec: OpSpec) -> Iterator[Mutant]:
    """Change the shape rule's results."""
    rule = spec.shape

    def changed(change: Callable[[Shape], Shape]) -> OpSpec:
        return replace(spec, shape=lambda s, a: (*rule(s, a)[:-1], change(rule(s, a)[-1])))

    yield Mutant("shape", DOUBLED, changed(lambda shape: (*shape[:-1], 2 * shape[-1]) if shape else (2,)))
    yield Mutant("shape", HALVED, changed(lambda shape: shape[1:] if shape else (1,)))
    yield Mutant("shape", PLUS_ONE, changed(lambda shape: (*shape[:-1], shape[-1] + 1) if shape else (1,)))
    yield Mutant("shape", CONSTANT, changed(lambda shape: (1, 1)))
    if _reversed_operands(spec):
        same = "broadcasting is symmetric" if spec.kind is OpKind.ELEMENTWISE else ""
        same = same or ("extents along the axis add up in any order" if spec.name == "concat" else "")
        yield Mutant("shape", SWAPPED, replace(spec, shape=lambda s, a: rule(s[::-1], a)), same)


def _map_sources(axis_map: AxisMap, change: Callable[[DimSource], DimSource]) -> AxisMap:
    return AxisMap(tuple(tuple(change(source) for source in sources) for sources in axis_map.results), axis_map.reduced)


def _shifted(source: DimSource) -> DimSource:
    """Return the source one off: the next dimension, the next factor, a piece that starts one later."""
    match source:
        case Same(dims) if dims:
            return Same((Dim(dims[0].operand, dims[0].axis - 1), *dims[1:]))
        case Product(dims):
            return Product(dims[1:] + dims[:1])
        case Concatenated(dims):
            return Concatenated((Dim(dims[0].operand, dims[0].axis - 1), *dims[1:]))
        case Factor(dim, position, extents):
            return Factor(dim, (position + 1) % len(extents), extents)
        case Regrouped(dims, position, extents):
            return Regrouped(dims, (position + 1) % len(extents), extents)
        case Piece(dim, start, extent):
            return Piece(dim, start + 1, extent)
    return source


def _emptied(axis_map: AxisMap) -> AxisMap:
    return AxisMap(axis_map.results) if axis_map.reduced else _map_sources(axis_map, lambda source: Same())


def _twice(axis_map: AxisMap) -> AxisMap:
    """Return the map that also folds the first dimension it keeps."""
    for sources in axis_map.results:
        for source in sources:
            if isinstance(source, Same) and source.dims and (source.dims,) != axis_map.reduced:
                return AxisMap(axis_map.results, (*axis_map.reduced, (source.dims[0],)))
            if isinstance(source, Factor | Piece):
                return AxisMap(axis_map.results, (*axis_map.reduced, (source.dim,)))
    return AxisMap(axis_map.results, ((Dim(0, -1),), *axis_map.reduced))


def _exchanged(axis_map: AxisMap) -> AxisMap:
    """Return the map with operand numbers 0 and 1 exchanged."""

    def other(dim: Dim) -> Dim:
        return Dim({0: 1, 1: 0}.get(dim.operand, dim.operand), dim.axis)

    def change(source: DimSource) -> DimSource:
        if isinstance(source, Same | Concatenated):
            return type(source)(tuple(other(dim) for dim in source.dims))
        return source

    reduced = tuple(tuple(other(part) if isinstance(part, Dim) else part for part in g) for g in axis_map.reduced)
    return AxisMap(_map_sources(axis_map, change).results, reduced)


def mutate_axes(spec: OpSpec) -> Iterator[Mutant]:
    """Change the axis map."""
    rule = spec.axes
    if spec.kind is OpKind.CONSTANT:
        yield Mutant("axes", CONSTANT, replace(spec, axes=lambda s, a: AxisMap(((Same(),),))))
        return

    def changed(change: Callable[[AxisMap], AxisMap]) -> OpSpec:
        return replace(spec, axes=lambda s, a: change(rule(s, a)))

    yield Mutant("axes", HALVED, changed(_emptied))
    yield Mutant("axes", DOUBLED, changed(_twice))
    yield Mutant("axes", PLUS_ONE, changed(lambda axis_map: _map_sources(axis_map, _shifted)))
    yield Mutant("axes", CONSTANT, changed(lambda axis_map: _map_sources(axis_map, lambda source: Same())))
    if _reversed_operands(spec):
        yield Mutant("axes", SWAPPED, changed(_exchanged))


def mutate_float(spec: OpSpec) -> Iterator[Mutant]:
    """Change the float rule's results, or what it is given."""
    rule = spec.on_float

    def changed(change: Callable[[Array], Array]) -> OpSpec:
        mutated: FloatRule = lambda x, a, prefix: tuple(change(result) for result in rule(x, a, prefix))  # noqa: E731
        return replace(spec, on_float=mutated)

    yield Mutant("on_float", DOUBLED, changed(lambda result: 2 * result))
    yield Mutant("on_float", HALVED, changed(lambda result: 0.5 * result))
    yield Mutant("on_float", PLUS_ONE, changed(lambda result: result + 1))
    yield Mutant("on_float", CONSTANT, changed(lambda result: 0 * result))
    if spec.kind is OpKind.MOVEMENT:
        yield Mutant("on_float", "rolled by one", changed(lambda result: np.roll(result, 1)))
    if _reversed_operands(spec):
        yield Mutant("on_float", SWAPPED, replace(spec, on_float=lambda x, a, p: rule(x[::-1], a, p)), _symmetric(spec))


def _symmetric(spec: OpSpec) -> str:
    """Return why operands may be exchanged, judged by the oracle, not by the record."""
    if spec.arity != 2:
        return ""
    operands = operands_of(Case(((3, 3), (3, 3)), {}, ("positive", "positive")), np.random.default_rng(0))
    same = np.allclose(oracle(spec.name, operands, {})[0], oracle(spec.name, operands[::-1], {})[0])
    return "the operator is commutative" if same else ""


def _field_of(value: FieldValue, f: FieldArithmetic, mutation: str) -> FieldValue:
    if mutation == PLUS_ONE:
        return f.add(value, f.const(1))
    return f.mul(value, f.const({DOUBLED: Fraction(2), HALVED: Fraction(1, 2), CONSTANT: Fraction(0)}[mutation]))


def _changed_exact(rule: ExactRule, mutation: str) -> Exact:
    return Exact(lambda f, x, a: _field_of(rule(f, x, a), f, mutation))


def _changed_piece(rule: PieceRule, mutation: str) -> PieceRule:
    return lambda f, x, a, choice: _field_of(rule(f, x, a, choice), f, mutation)


def mutate_field(spec: OpSpec) -> Iterator[Mutant]:
    """Change the meaning in the field, or replace a meaning that is no rule by the identity."""

    def made(meaning: FieldMeaning) -> OpSpec:
        return replace(spec, field=meaning)

    match spec.field:
        case Exact(rule):
            for mutation in (DOUBLED, HALVED, PLUS_ONE, CONSTANT):
                yield Mutant("field", mutation, made(_changed_exact(rule, mutation)))
            if _reversed_operands(spec):
                yield Mutant("field", SWAPPED, made(Exact(lambda f, x, a: rule(f, x[::-1], a))), _symmetric(spec))
        case Branch() as branch:
            yield from _mutate_branch(spec, branch)
        case _:
            yield Mutant("field", CONSTANT, made(Exact(lambda f, x, a: x[0])))


def _mutate_branch(spec: OpSpec, branch: Branch) -> Iterator[Mutant]:
    def made(part: str, mutation: str, changed: Branch) -> Mutant:
        return Mutant("field", f"{part} {mutation}", replace(spec, field=changed))

    count, select, rule, guards = branch.count, branch.select, branch.rule, branch.guards
    yield made("count", PLUS_ONE, replace(branch, count=lambda s, a: count(s, a) + 1))
    yield made("count", CONSTANT, replace(branch, count=lambda s, a: 1))
    yield made("select", CONSTANT, replace(branch, select=lambda x, a: 0 * select(x, a)))
    yield made("select", PLUS_ONE, replace(branch, select=lambda x, a: (select(x, a) + 1) % 2))
    for mutation in (DOUBLED, HALVED, PLUS_ONE, CONSTANT):
        yield made("rule", mutation, replace(branch, rule=_changed_piece(rule, mutation)))
    if _reversed_operands(spec):
        yield made("select", SWAPPED, replace(branch, select=lambda x, a: select(x[::-1], a)))
        yield made("rule", SWAPPED, replace(branch, rule=lambda f, x, a, c: rule(f, x[::-1], a, c)))

    for mutation in ("negated", HALVED, PLUS_ONE, CONSTANT):
        yield made("guards", mutation, replace(branch, guards=_ChangedGuards(guards, mutation)))


@dataclass(frozen=True)
class _ChangedGuards:
    """Guards of a piecewise operator with each inequality changed, or the first one left out."""

    guards: Guards
    mutation: str

    def __call__(
        self, b: Apply[T], operands: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes, branch: int
    ) -> tuple[T, ...]:
        original = self.guards(b, operands, shapes, attributes, branch)
        match self.mutation:
            case "negated":
                return tuple(b("neg", guard) for guard in original)
            case "factor dropped":
                return original[1:]
            case "off by one":
                return tuple(b("add", guard, b("constant", value=1)) for guard in original)
        return tuple(b("square", guard) for guard in original)


def _term(b: TermAlgebra[T], term: T, mutation: str) -> T:
    match mutation:
        case "factor doubled":
            return b.mul(b.constant(Fraction(2)), term)
        case "factor dropped":
            return b.mul(b.constant(Fraction(1, 2)), term)
        case "off by one":
            return b.add(b.constant(Fraction(1)), term)
    return b.constant(Fraction(5, 7))


def mutate_abstract(spec: OpSpec) -> Iterator[Mutant]:
    """Change the abstract expression."""
    rule = spec.abstract

    def changed(mutation: str) -> AbstractRule:
        def mutated(b: TermAlgebra[T], terms: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
            if mutation == SWAPPED:
                return rule(b, terms[::-1], shapes, attributes)
            if mutation == "extent off by one":
                return rule(b, terms, tuple((*shape[:-1], shape[-1] + 1) for shape in shapes), attributes)
            return _term(b, rule(b, terms, shapes, attributes), mutation)

        return mutated

    for mutation in (DOUBLED, HALVED, PLUS_ONE, CONSTANT):
        yield Mutant("abstract", mutation, replace(spec, abstract=changed(mutation)))
    if _reversed_operands(spec):
        same = _symmetric(spec) or ("mul is commutative under A_eq" if spec.name == "matmul" else "")
        yield Mutant("abstract", SWAPPED, replace(spec, abstract=changed(SWAPPED)), same)
    if spec.name in ("sum", "mean", "max", "matmul"):
        yield Mutant("abstract", "extent off by one", replace(spec, abstract=changed("extent off by one")))


def mutate_work(spec: OpSpec) -> Iterator[Mutant]:
    """Change flops and counts of elements."""
    rule = spec.work

    def changed(change: Callable[[Work], Work]) -> OpSpec:
        mutated: WorkRule = lambda s, a: change(rule(s, a))  # noqa: E731
        return replace(spec, work=mutated)

    none = "an operator without flops has none to double"
    free = spec.kind in (OpKind.MOVEMENT, OpKind.CONSTANT)
    yield Mutant("work", DOUBLED, changed(lambda w: replace(w, flops=2 * w.flops)), none if free else "")
    yield Mutant("work", HALVED, changed(lambda w: replace(w, flops=w.flops // 2)), none if free else "")
    yield Mutant("work", PLUS_ONE, changed(lambda w: replace(w, flops=w.flops + 1)))
    yield Mutant("work", CONSTANT, changed(lambda w: Work(1, 1, 1)))
    literal = "a constant reads and writes nothing" if spec.kind is OpKind.CONSTANT else ""
    yield Mutant("work", "reads dropped", changed(lambda w: replace(w, elements_read=0)), literal)
    yield Mutant(
        "work", "writes doubled", changed(lambda w: replace(w, elements_written=2 * w.elements_written)), literal
    )
    if _reversed_operands(spec):
        same = "" if spec.name == "matmul" else "elements are counted over all operands alike"
        yield Mutant("work", SWAPPED, replace(spec, work=lambda s, a: rule(s[::-1], a)), same)


def mutate_c(spec: OpSpec) -> Iterator[Mutant]:
    """Change the C expression."""
    rule = spec.scalar_c
    if rule is None or not has_compiler():
        return

    def changed(change: Callable[[str], str]) -> OpSpec:
        return replace(spec, scalar_c=lambda a: change(rule if isinstance(rule, str) else rule(a)))

    yield Mutant("scalar_c", DOUBLED, changed(lambda c: f"(2.0f * {c})"))
    yield Mutant("scalar_c", HALVED, changed(lambda c: f"(0.5f * {c})"))
    yield Mutant("scalar_c", PLUS_ONE, changed(lambda c: f"(1.0f + {c})"))
    yield Mutant("scalar_c", CONSTANT, changed(lambda c: "0.0f"))
    if spec.arity == 2:
        swapped = changed(lambda c: c.replace("{0}", "{2}").replace("{1}", "{0}").replace("{2}", "{1}"))
        yield Mutant("scalar_c", SWAPPED, swapped, _symmetric(spec))


def mutate_expand(spec: OpSpec) -> Iterator[Mutant]:
    """Change a composite's expansion."""
    rule = spec.expand
    if rule is None:
        return

    def changed(mutation: str) -> Expansion:
        def mutated(b: Apply[T], operands: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
            value = rule(b, operands, shapes, attributes)
            match mutation:
                case "factor doubled":
                    return b("scale", value, factor=2)
                case "factor dropped":
                    return b("scale", value, factor=Fraction(1, 2))
                case "off by one":
                    return b("add", value, b("constant", value=1))
            return b("constant", value=1)

        return mutated

    for mutation in (DOUBLED, HALVED, PLUS_ONE, CONSTANT):
        yield Mutant("expand", mutation, replace(spec, expand=changed(mutation)))


def mutate_homogeneity(spec: OpSpec) -> Iterator[Mutant]:
    """Change what the record says about constant factors."""
    rule = spec.homogeneous

    def changed(change: Callable[[Homogeneity], Homogeneity | None]) -> OpSpec:
        return replace(spec, homogeneous=lambda a: tuple(new for old in rule(a) if (new := change(old)) is not None))

    none = "" if _ever_homogeneous(spec) else "no factor passes through"
    yield Mutant("homogeneous", PLUS_ONE, changed(lambda h: replace(h, degree=h.degree + 1)), none)
    yield Mutant("homogeneous", HALVED, changed(lambda h: None), none)
    yield Mutant("homogeneous", "sign condition flipped", changed(lambda h: replace(h, positive=not h.positive)), none)
    if spec.arity == 2:
        swapped = changed(lambda h: replace(h, operands=tuple(1 - number for number in h.operands)))
        yield Mutant("homogeneous", SWAPPED, swapped, none or _symmetric_degrees(spec))
    declared = "degree 1 in all operands is what the record says" if _all_of_degree_one(spec) else ""
    always = replace(spec, homogeneous=lambda a: (Homogeneity((), Fraction(1)),))
    yield Mutant("homogeneous", CONSTANT, always, declared)


def _sample_attributes(spec: OpSpec) -> list[Attributes]:
    return [case.complete(spec) for case in CASES[spec.name]]


def _ever_homogeneous(spec: OpSpec) -> bool:
    return any(spec.homogeneous(attributes) for attributes in _sample_attributes(spec))


def _all_of_degree_one(spec: OpSpec) -> bool:
    every = tuple(range(spec.arity or 0))
    rules = spec.homogeneous(_sample_attributes(spec)[0])
    return [(rule.operands or every, rule.degree, rule.positive) for rule in rules] == [(every, Fraction(1), False)]


def _symmetric_degrees(spec: OpSpec) -> str:
    rules = spec.homogeneous(_sample_attributes(spec)[0])
    exchanged = {(tuple(sorted(1 - n for n in rule.operands)), rule.degree) for rule in rules}
    return "the degrees are symmetric" if exchanged == {(rule.operands, rule.degree) for rule in rules} else ""


def mutate_plain_fields(spec: OpSpec) -> Iterator[Mutant]:
    """Change symmetry, levels, number of results, and defaults of attributes."""
    results = spec.num_results
    yield Mutant("commutative", "flipped", replace(spec, commutative=not spec.commutative))
    yield Mutant("levels", "flipped", replace(spec, levels=spec.levels ^ {"thread"}))
    yield Mutant("num_results", PLUS_ONE, replace(spec, num_results=lambda a: results(a) + 1))
    for number, attribute in enumerate(spec.attributes):
        if isinstance(attribute.default, int | Fraction):
            other = replace(attribute, default=attribute.default + 1)
            yield Mutant("attributes", f"default of {attribute.name} {PLUS_ONE}", _with(spec, number, other))
        if attribute.normalize is not None:
            other = replace(attribute, normalize=None)
            yield Mutant("attributes", f"{attribute.name} not normalised", _with(spec, number, other))


def _with(spec: OpSpec, number: int, attribute: Attribute) -> OpSpec:
    return replace(spec, attributes=(*spec.attributes[:number], attribute, *spec.attributes[number + 1 :]))


def mutate_laws(spec: OpSpec) -> Iterator[Mutant]:
    """Change a side of a law that holds, or the claim that it holds."""
    for number, law in enumerate(spec.laws):

        def made(mutation: str, changed: Law, position: int = number) -> Mutant:
            laws = (*spec.laws[:position], changed, *spec.laws[position + 1 :])
            return Mutant("laws", f"{spec.laws[position].name} {mutation}", replace(spec, laws=laws))

        yield made("claim flipped", replace(law, false_law=not law.false_law))
        if not law.false_law:
            left = law.left
            doubled = replace(law, left=lambda b, *x, left=left: b("scale", left(b, *x), factor=2))
            yield made(DOUBLED, doubled)
            if law.positive:
                yield made("premise dropped", replace(law, positive=False))


MUTATORS = (
    mutate_shape,
    mutate_axes,
    mutate_float,
    mutate_field,
    mutate_abstract,
    mutate_work,
    mutate_c,
    mutate_expand,
    mutate_homogeneity,
    mutate_plain_fields,
    mutate_laws,
)
