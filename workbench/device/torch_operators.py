"""How torch computes each operator: one expression a result, as text.

Invariant: the table is total over the registry, so a new operator without an entry fails a test, never a measurement; each
entry is what a user of torch would write, with torch's fused function where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from workbench.core.shapes import Shape
from workbench.errors import MissingRuleError
from workbench.ops.attributes import extents, fraction, integer, text
from workbench.ops.spec import Attributes

TorchRule = Callable[[Sequence[str], tuple[Shape, ...], Attributes], str]
"""Operands as Python names (or literals), operand shapes, attributes -> an expression; several results: a tuple's."""


def literal(value: Fraction | int) -> str:
    """Return a number as a Python literal, in brackets where it is negative."""
    shown = repr(float(value))
    return f"({shown})" if shown.startswith("-") else shown


def _unary(function: str) -> TorchRule:
    return lambda x, shapes, attributes: f"{function}({x[0]})"


def _binary(symbol: str) -> TorchRule:
    return lambda x, shapes, attributes: f"{x[0]} {symbol} {x[1]}"


def _fold(function: str) -> TorchRule:
    def rule(x: Sequence[str], shapes: tuple[Shape, ...], attributes: Attributes) -> str:
        return f"{function}({x[0]}, {integer(attributes, 'axis')}, keepdim=True)"

    return rule


def _eps(attributes: Attributes) -> str:
    return literal(fraction(attributes, "eps"))


def _rms(x: Sequence[str], shapes: tuple[Shape, ...], attributes: Attributes) -> str:
    mean = f"{x[0]}.float().square().mean({integer(attributes, 'axis')}, keepdim=True)"
    return f"({mean} + {_eps(attributes)}).sqrt()"


def _l2_norm(x: Sequence[str], shapes: tuple[Shape, ...], attributes: Attributes) -> str:
    if not fraction(attributes, "eps"):
        return f"{x[0]} / torch.linalg.vector_norm({x[0]}, dim=-1, keepdim=True)"
    return f"{x[0]} * torch.rsqrt({x[0]}.float().square().sum(-1, keepdim=True) + {_eps(attributes)})"


def _norm(function: str) -> TorchRule:
    def rule(x: Sequence[str], shapes: tuple[Shape, ...], attributes: Attributes) -> str:
        weight = f", weight={x[1]}" if len(x) > 1 else ""  # a gain that the program multiplies by next
        return f"F.{function}({x[0]}, ({shapes[0][-1]},){weight}, eps={_eps(attributes)})"

    return rule


def _extremum(clamp: str) -> TorchRule:
    def rule(x: Sequence[str], shapes: tuple[Shape, ...], attributes: Attributes) -> str:
        numbers = [is_literal(operand) for operand in x]
        if any(numbers):
            one, bound = (x[1], x[0]) if numbers[0] else (x[0], x[1])
            return f"torch.clamp({one}, {clamp}={bound})"
        return f"torch.{'maximum' if clamp == 'min' else 'minimum'}({x[0]}, {x[1]})"

    return rule


def is_literal(operand: str) -> bool:
    """Return whether an operand is a number rather than a name."""
    return operand.lstrip("(-")[:1].isdigit()


def _split(x: Sequence[str], shapes: tuple[Shape, ...], attributes: Attributes) -> str:
    parts, axis = attributes["parts"], integer(attributes, "axis")
    sizes = parts if isinstance(parts, tuple) else (shapes[0][axis] // int(str(parts)),) * int(str(parts))
    return f"torch.split({x[0]}, {list(sizes)}, {axis})"


def _sum_to_columns(x: Sequence[str], shapes: tuple[Shape, ...], attributes: Attributes) -> str:
    columns = integer(attributes, "columns")
    return f"{x[0]}.unflatten(-1, ({shapes[0][-1] // columns}, {columns})).sum(-2)"


TORCH_RULES: dict[str, TorchRule] = {
    "abs": _unary("torch.abs"),
    "add": _binary("+"),
    "broadcast": lambda x, shapes, attributes: f"{x[0]}.expand{extents(attributes, 'shape')}",
    "clamp": lambda x, shapes, attributes: (
        f"torch.clamp({x[0]}, {literal(fraction(attributes, 'lo'))}, {literal(fraction(attributes, 'hi'))})"
    ),
    "concat": lambda x, shapes, attributes: f"torch.cat([{', '.join(x)}], {integer(attributes, 'axis')})",
    "constant": lambda x, shapes, attributes: literal(fraction(attributes, "value")),
    "div": _binary("/"),
    "erf": _unary("torch.erf"),
    "exp": _unary("torch.exp"),
    "gelu": lambda x, shapes, attributes: f"F.gelu({x[0]}, approximate={text(attributes, 'approximate')!r})",
    "l2_norm": _l2_norm,
    "layer_norm": _norm("layer_norm"),
    "log": _unary("torch.log"),
    "matmul": _binary("@"),
    "max": _fold("torch.amax"),
    "maximum": _extremum("min"),
    "mean": _fold("torch.mean"),
    "minimum": _extremum("max"),
    "mul": _binary("*"),
    "neg": lambda x, shapes, attributes: f"-{x[0]}",
    "pow": _binary("**"),
    "power": lambda x, shapes, attributes: f"{x[0]} ** {integer(attributes, 'exponent')}",
    "relu": _unary("F.relu"),
    "reshape": lambda x, shapes, attributes: f"{x[0]}.reshape({extents(attributes, 'shape')})",
    "rms": _rms,
    "rms_norm": _norm("rms_norm"),
    "rsqrt": _unary("torch.rsqrt"),
    "scale": lambda x, shapes, attributes: f"{x[0]} * {literal(fraction(attributes, 'factor'))}",
    "sigmoid": _unary("torch.sigmoid"),
    "silu": _unary("F.silu"),
    "softmax": lambda x, shapes, attributes: f"torch.softmax({x[0]}, {integer(attributes, 'axis')})",
    "split": _split,
    "sqrt": _unary("torch.sqrt"),
    "square": _unary("torch.square"),
    "sub": _binary("-"),
    "sum": _fold("torch.sum"),
    "sum_to_columns": _sum_to_columns,
    "tanh": _unary("torch.tanh"),
    "transpose": lambda x, shapes, attributes: f"{x[0]}.transpose(-1, -2)",
}

TAKES_NUMBERS = frozenset({"add", "div", "maximum", "minimum", "mul", "pow", "sub"})
"""Operators that torch lets have one Python number for an operand; anywhere else a constant becomes a tensor."""


def torch_rule(name: str) -> TorchRule:
    """Return the rule of an operator. Raises: MissingRuleError."""
    if name not in TORCH_RULES:
        raise MissingRuleError(f"no torch expression for operator {name}; add it to TORCH_RULES")
    return TORCH_RULES[name]
