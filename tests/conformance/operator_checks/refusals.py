"""What an operator must refuse: shapes that do not fit, by a ShapeError that names the operator and what is wrong."""

from __future__ import annotations

from tests.conformance.operator_checks.cases import Case
from workbench.errors import AttributeValueError, ShapeError
from workbench.ops import normalize_attributes
from workbench.ops.spec import OpSpec

BAD_SHAPES: dict[str, list[tuple[tuple[tuple[int, ...], ...], dict[str, object], str]]] = {
    "add": [
        (((3, 4), (3, 5)), {}, "do not broadcast"),
        (((3, 4),), {}, "takes 2 operands, got 1"),
    ],
    "exp": [
        (((3,), (3,)), {}, "takes 1 operands, got 2"),
    ],
    "maximum": [
        (((2, 3), (2,)), {}, "do not broadcast"),
    ],
    "constant": [
        (((3,),), {"value": 1}, "takes 0 operands"),
    ],
    "concat": [
        ((), {}, "needs at least one operand"),
        (((3, 4), (2, 5)), {"axis": -1}, "differ in an axis other than -1"),
        (((3, 4), (4,)), {"axis": -1}, "operands of one rank"),
        (((3, 4), (3, 4)), {"axis": 3}, "axis 3 does not exist"),
    ],
    "matmul": [
        (((3, 4), (5, 6)), {}, "inner extents differ"),
        (((4,), (4, 6)), {}, "at least two axes"),
        (((2, 3, 4), (3, 4, 5)), {}, "leading axes"),
    ],
    "sum": [
        (((3, 4),), {"axis": 2}, "axis 2 does not exist"),
        (((),), {}, "axis -1 does not exist"),
    ],
    "mean": [
        (((3,),), {"axis": -2}, "axis -2 does not exist"),
    ],
    "max": [
        (((),), {}, "does not exist"),
    ],
    "sum_to_columns": [
        (((3, 10),), {"columns": 4}, "4 columns do not divide"),
        (((),), {"columns": 1}, "a scalar"),
    ],
    "rms": [
        (((),), {}, "does not exist"),
    ],
    "rms_norm": [
        (((),), {}, "a scalar"),
    ],
    "l2_norm": [
        (((),), {}, "a scalar"),
    ],
    "layer_norm": [
        (((),), {}, "a scalar"),
    ],
    "softmax": [
        (((3, 4),), {"axis": -3}, "axis -3 does not exist"),
        (((),), {}, "does not exist"),
    ],
    "transpose": [
        (((3,),), {}, "at least two axes"),
    ],
    "reshape": [
        (((3, 4),), {"shape": (5, 2)}, "do not fill"),
        (((3, 4),), {"shape": (5, -1)}, "does not divide"),
    ],
    "split": [
        (((3, 4),), {"parts": 3}, "3 equal parts do not divide"),
        (((3, 4),), {"parts": (1, 2)}, "add up to 3"),
        (((3, 4),), {"parts": 2, "axis": 5}, "axis 5 does not exist"),
    ],
    "broadcast": [
        (((3, 4),), {"shape": (3, 5)}, "do not broadcast"),
        (((3, 4),), {"shape": (4,)}, "does not stretch"),
        (((3, 4),), {"shape": (3, 1)}, "does not stretch"),
        (((3, 4),), {"shape": (-1, 4)}, "means nothing here"),
    ],
}
ALLOWED_BOUNDS, EXCHANGED_BOUNDS = {"lo": 0.5, "hi": 0.5}, {"lo": 0.55, "hi": 0.5}


def _refusal(spec: OpSpec, case: Case, *, normalised: bool) -> str:
    """Return the message with which a case is refused, "" if it is accepted.

    With `normalised` the attributes meet the shapes first, as in a builder.
    """
    try:
        attributes = spec.check_attributes(case.attributes)
        if normalised:
            attributes = normalize_attributes(spec, attributes, case.shapes)
        spec.infer_shapes(case.shapes, attributes)
    except (ShapeError, AttributeValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def check_refusals(spec: OpSpec) -> None:
    """Try every listed misuse, and the bounds of a clamp, which are the one condition between two attributes."""
    for shapes, attributes, message in BAD_SHAPES.get(spec.name, []):
        case = Case(shapes, attributes)
        refusal = _refusal(spec, case, normalised=True)
        assert message in refusal, (case, refusal)
        assert refusal.startswith(f"ShapeError: operator {spec.name}"), refusal
        assert _refusal(spec, case, normalised=False).startswith("ShapeError"), case
    if spec.name == "clamp":
        assert not _refusal(spec, Case(((3,),), ALLOWED_BOUNDS), normalised=True)
        refusal = _refusal(spec, Case(((3,),), EXCHANGED_BOUNDS), normalised=True)
        assert refusal == "AttributeValueError: operator clamp: lo = 11/20 is above hi = 1/2; exchange them"
