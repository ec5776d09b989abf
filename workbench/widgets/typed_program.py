"""A program typed as a formula, `rms_norm(X) * G @ W`, read without running any code.

Invariant: only operators of the workbench, inputs and numbers mean something; everything else is refused and named, so
that a page may offer a field for it.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping
from dataclasses import replace

from workbench.errors import UsageError
from workbench.ugraph import value as operators
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.tracing import trace

_BINARY = {
    ast.Add: "__add__",
    ast.Sub: "__sub__",
    ast.Mult: "__mul__",
    ast.Div: "__truediv__",
    ast.MatMult: "__matmul__",
}
_NAMES = (
    "abs", "broadcast", "clamp", "concat", "exp", "gelu", "l2_norm", "layer_norm", "log", "matmul", "max", "maximum", "mean",
    "minimum", "pow", "relu", "reshape", "rms", "rms_norm", "rsqrt", "sigmoid", "silu", "softmax", "split", "sqrt", "square",
    "sum", "sum_to_columns", "tanh", "transpose",
)  # fmt: skip
_SHAPE = re.compile(r"([A-Za-z_]\w*)\s*[=:]\s*([0-9]+(?:\s*[x×]\s*[0-9]+)*)")


def typed_program(formula: str, shapes: str, *, dtype: str = "float16", name: str = "typed") -> KernelGraph:
    """Return the program of a formula over named inputs. shapes: `X=16x4096 G=4096 W=4096x4096`, in the inputs' order.

    Raises: UsageError for what cannot be read; ShapeError and others of the operators.
    """
    sizes = read_shapes(shapes)
    try:
        tree = ast.parse(formula.strip(), mode="eval")
    except SyntaxError as error:
        raise UsageError(f"formula {formula.strip()!r} cannot be read at column {error.offset}: {error.msg}") from error

    def written(**values: object) -> object:
        return _Formula(values).value(tree.body)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    written.__signature__ = inspect.Signature([inspect.Parameter(size, kind) for size in sizes])  # type: ignore[attr-defined]
    return replace(trace(written, dtype=dtype, **sizes), name=name)


def read_shapes(text: str) -> dict[str, tuple[int, ...]]:
    """Return shapes by name. Raises: UsageError for what is no `NAME=16x64`, or a name given twice."""
    found: dict[str, tuple[int, ...]] = {}
    rest = text
    for match in _SHAPE.finditer(text):
        if match[1] in found:
            raise UsageError(f"input {match[1]} is given two shapes")
        found[match[1]] = tuple(int(extent) for extent in re.split(r"\s*[x×]\s*", match[2]))
        rest = rest.replace(match[0], "", 1)
    if rest.strip(" ,;\n\t"):
        raise UsageError(f"{rest.strip()!r} is no shape; write NAME=16x64, one per input")
    if not found:
        raise UsageError("give a shape per input: NAME=16x64")
    return found


class _Formula:
    def __init__(self, inputs: Mapping[str, object]) -> None:
        self.inputs = inputs

    def value(self, node: ast.expr) -> object:
        match node:
            case ast.Name(id=name):
                if name not in self.inputs:
                    raise UsageError(f"{name} is no input; there are {', '.join(self.inputs)}")
                return self.inputs[name]
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.value(operand)  # type: ignore[operator]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return self._binary(_BINARY[type(op)], self.value(left), self.value(right))
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return tuple(self.value(item) for item in items)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in _NAMES:
                named = {word.arg: self.value(word.value) for word in keywords if word.arg}
                return getattr(operators, name)(*(self.value(arg) for arg in args), **named)
            case ast.Call(func=ast.Name(id=name)):
                raise UsageError(f"{name} is no operator; there are {', '.join(_NAMES)}")
        raise UsageError(f"{ast.unparse(node)!r} means nothing in a formula; use operators, inputs and numbers")

    @staticmethod
    def _binary(method: str, left: object, right: object) -> object:
        made = getattr(type(left), method)(left, right)
        if made is NotImplemented:
            made = getattr(type(right), method.replace("__", "__r", 1))(right, left)
        return made
