"""Every rule of every operator against every other rule, over the whole registry (STYLE 2.4)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.operator_checks import CHECKS, has_compiler
from tests.conformance.operator_checks.cases import CASES, ORACLES
from tests.conformance.operator_checks.fields import NoFieldMeaning
from tests.conformance.operator_checks.laws import SHAPE, field_holds, float_holds
from tests.conformance.operator_checks.refusals import BAD_SHAPES
from workbench.core.dtypes import as_dtype
from workbench.errors import AttributeValueError, DTypeError, MissingRuleError, UnknownNameError
from workbench.ops import operator, operators
from workbench.ops.spec import Array, Law, OpSpec

SPECS = {spec.name: spec for spec in operators()}
TRUE_LAWS = [(spec, law) for spec in SPECS.values() for law in spec.laws if not law.false_law]
FALSE_LAWS = [(spec, law) for spec in SPECS.values() for law in spec.laws if law.false_law]
PROMISED = (
    "matmul add sub mul div pow neg scale abs exp log sqrt rsqrt square silu gelu sigmoid tanh relu clamp maximum "
    "minimum sum mean max rms_norm l2_norm layer_norm softmax transpose reshape concat split broadcast"
)


def _id(pair: tuple[OpSpec, Law]) -> str:
    return f"{pair[0].name}-{pair[1].name}"


def test_every_promised_operator_is_registered_and_tried() -> None:
    assert set(PROMISED.split()) <= set(SPECS)
    assert set(SPECS) == set(CASES) == set(ORACLES)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", SPECS)
def test_rules_agree(name: str, check: str) -> None:
    if check == "C expression" and not has_compiler():
        pytest.skip("no C compiler `cc` on the PATH")
    CHECKS[check](SPECS[name])


# ---------------------------------------------------------------------------------------------------------------- laws
def _numbers(drawn: bytes, law: Law) -> tuple[Array, ...]:
    """Return the variables of a law: a byte makes a multiple of 1/32 from 1/4 up to 4.2, its top bit the sign."""
    values = np.frombuffer(drawn, np.uint8).reshape(law.variables, *SHAPE)
    signs = np.where(values < 128, 1.0, 1.0 if law.positive else -1.0)
    return tuple(signs * (0.25 + (values % 128) / 32))


@pytest.mark.parametrize("pair", TRUE_LAWS, ids=_id)
@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_true_laws_hold_on_any_numbers(pair: tuple[OpSpec, Law], data: st.DataObject) -> None:
    """Where both sides are defined they agree to rounding, relative to the largest intermediate value."""
    _, law = pair
    size = law.variables * SHAPE[0] * SHAPE[1]
    assert float_holds(law, _numbers(data.draw(st.binary(min_size=size, max_size=size)), law), everywhere=False)


def _field_verdicts(law: Law, seed: int) -> list[bool]:
    """Return whether a law holds at each of five field points; none where an opaque operator hides it."""
    rng = np.random.default_rng(seed)
    try:
        return [field_holds(law, rng) for _ in range(5)]
    except NoFieldMeaning:
        return []


@pytest.mark.parametrize("pair", TRUE_LAWS, ids=_id)
def test_true_laws_hold_at_many_field_points(pair: tuple[OpSpec, Law]) -> None:
    assert all(_field_verdicts(pair[1], 2024))


@pytest.mark.parametrize("pair", FALSE_LAWS, ids=_id)
def test_false_laws_fail_at_every_field_point(pair: tuple[OpSpec, Law]) -> None:
    """A false identity holds with probability about degree/p per point: never in a handful of draws."""
    assert not any(_field_verdicts(pair[1], 2025))


def test_only_laws_through_opaque_operators_are_hidden_from_the_field() -> None:
    pairs = (*TRUE_LAWS, *FALSE_LAWS)
    hidden = {_id(pair) for pair in pairs if not _field_verdicts(pair[1], 1)}
    through_erf = {"gelu-odd_part", "gelu-forms_agree"}
    assert hidden == {_id(pair) for pair in pairs if pair[0].name in ("log", "pow", "erf")} | through_erf


def test_there_are_true_and_false_laws_for_most_operators() -> None:
    assert len(TRUE_LAWS) >= 60
    assert len(FALSE_LAWS) >= 20


# ------------------------------------------------------------------------------------------------------ what is refused
def test_every_operator_with_a_shape_rule_has_a_negative_case() -> None:
    """Elementwise operators share one rule; `add` and `maximum` stand for them."""
    assert {name for name, spec in SPECS.items() if spec.kind.value != "elementwise"} <= set(BAD_SHAPES)


BAD_ATTRIBUTES: list[tuple[str, dict[str, object], str]] = [
    ("scale", {}, "'factor' is missing"),
    ("scale", {"factor": float("nan")}, "must be finite"),
    ("scale", {"factor": "much"}, "factor"),
    ("power", {"exponent": 0}, "constant 1"),
    ("power", {"exponent": 1.5}, "float is not an integer"),
    ("power", {"exponent": 1000}, "between -64 and 64"),
    ("gelu", {"approximate": "sigmoid"}, '"tanh"'),
    ("clamp", {"lo": 0}, "'hi' is missing"),
    ("sum", {"axis": 0.0}, "float is not an integer"),
    ("sum", {"axis": True}, "truth value"),
    ("sum", {"dim": 1}, "unknown attribute 'dim'"),
    ("sum_to_columns", {"columns": 0}, "at least 1"),
    ("rms_norm", {"eps": -1}, "must not be negative"),
    ("reshape", {"shape": (-1, -1)}, "only one may be -1"),
    ("reshape", {"shape": (0, 3)}, "at least 1"),
    ("reshape", {"shape": "3,4"}, "not a shape"),
    ("split", {"parts": ()}, "at least one part"),
    ("split", {"parts": 0}, "at least 1"),
    ("constant", {"value": None}, "not a number"),
    ("exp", {"base": 2}, "it takes: none"),
]


@pytest.mark.parametrize(("name", "attributes", "message"), BAD_ATTRIBUTES)
def test_attributes_that_mean_nothing_are_refused(name: str, attributes: dict[str, object], message: str) -> None:
    with pytest.raises(AttributeValueError, match=message) as caught:
        operator(name).check_attributes(attributes)
    assert f"operator {name}" in str(caught.value)


@pytest.mark.parametrize("name", ["convolution", "conv2d", "attention"])
def test_operators_outside_the_fragment_are_refused_with_a_cure(name: str) -> None:
    with pytest.raises(UnknownNameError, match=f"{name}.*not supported.*write"):
        operator(name)


def test_a_misspelt_operator_gets_the_near_names() -> None:
    with pytest.raises(UnknownNameError, match="did you mean softmax"):
        operator("soft_max")


@pytest.mark.parametrize("name", ["float8", "float8_e4m3", "float8_e5m2"])
def test_float8_is_refused_by_name(name: str) -> None:
    with pytest.raises(DTypeError, match=f"{name}.*not supported.*use float16 or bfloat16"):
        as_dtype(name)


@pytest.mark.parametrize("name", ["sum", "matmul", "softmax", "reshape"])
def test_operators_that_are_not_elementwise_have_no_c_expression(name: str) -> None:
    with pytest.raises(MissingRuleError, match=f"operator {name} has no one-element C expression"):
        operator(name).scalar_expression(("x", "y"), {})
