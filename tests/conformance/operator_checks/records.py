"""The plain fields of a record are what the design says: arity, kind, levels, defaults, and what goes with what."""

from __future__ import annotations

from fractions import Fraction

from tests.conformance.operator_checks.cases import CASES
from workbench.ops.attributes import normalize_attributes
from workbench.ops.spec import Exact, Expanded, Movement, Opaque, OpKind, OpSpec

KINDS = {
    OpKind.ELEMENTWISE: "add sub mul div neg scale square sqrt rsqrt exp log pow power silu gelu sigmoid tanh erf "
    "relu abs clamp maximum minimum",
    OpKind.REDUCTION: "sum mean max sum_to_columns rms rms_norm l2_norm layer_norm softmax",
    OpKind.CONTRACTION: "matmul",
    OpKind.MOVEMENT: "transpose reshape concat split broadcast",
    OpKind.CONSTANT: "constant",
}
KIND_OF = {name: kind for kind, names in KINDS.items() for name in names.split()}
BINARY = frozenset(["add", "sub", "mul", "div", "pow", "maximum", "minimum", "matmul"])
OPAQUE = frozenset(["log", "pow", "erf"])
ATTRIBUTES: dict[str, dict[str, object]] = {
    "scale": {"factor": None},
    "power": {"exponent": None},
    "gelu": {"approximate": "none"},
    "clamp": {"lo": None, "hi": None},
    "sum": {"axis": -1},
    "mean": {"axis": -1},
    "max": {"axis": -1},
    "sum_to_columns": {"columns": None},
    "rms": {"axis": -1, "eps": 0},
    "rms_norm": {"eps": Fraction(1, 1_000_000)},
    "l2_norm": {"eps": 0},
    "layer_norm": {"eps": Fraction(1, 100_000)},
    "softmax": {"axis": -1},
    "reshape": {"shape": None},
    "concat": {"axis": -1},
    "split": {"parts": None, "axis": -1},
    "broadcast": {"shape": None},
    "constant": {"value": None},
}


def expected_arity(name: str) -> int | None:
    """Return the number of operands by this file's own lists."""
    return {"concat": None, "constant": 0}.get(name, 2 if name in BINARY else 1)


def check_record(spec: OpSpec) -> None:
    """Check the fields that are no rules."""
    assert spec.kind is KIND_OF[spec.name]
    assert spec.arity == expected_arity(spec.name)
    assert {attribute.name: attribute.default for attribute in spec.attributes} == ATTRIBUTES.get(spec.name, {})
    everywhere = spec.kind in (OpKind.ELEMENTWISE, OpKind.CONSTANT)
    assert spec.levels == {"kernel", "block"} | ({"thread"} if everywhere else set())
    assert (spec.scalar_c is not None) == everywhere
    assert isinstance(spec.field, Opaque) == (spec.name in OPAQUE)
    assert isinstance(spec.field, Movement) == (spec.kind is OpKind.MOVEMENT)
    if isinstance(spec.field, Expanded):
        assert spec.expand is not None
    if isinstance(spec.field, Opaque):
        assert spec.expand is None
        assert spec.field.why
    if spec.kind in (OpKind.CONTRACTION, OpKind.CONSTANT):
        assert isinstance(spec.field, Exact)
    assert spec.source
    assert spec.laws or spec.name == "split"
    for case in CASES[spec.name]:
        complete = case.complete(spec)
        assert normalize_attributes(spec, complete, case.shapes) == complete, "normalised attributes stay as they are"
