"""A kernel graph as a torch function: Python text made from the graph, so that eager and compiled torch run the same.

Invariant: every node of the graph is in the text or covered by a fused form that computes the same; the function allocates
its outputs and never gives back the memory of an input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.device.attention_pattern import Attention
from workbench.device.torch_operators import TAKES_NUMBERS, is_literal, torch_rule
from workbench.errors import EmitError
from workbench.ops.spec import OpKind
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import OpNode


@dataclass(frozen=True, slots=True)
class TorchProgram:
    """The text of a torch function `program`, inputs by position, one output or a tuple of them."""

    source: str

    def load(self, torch: Any) -> Callable[..., Any]:
        """Return the function."""
        names: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
        exec(compile(self.source, "<torch program>", "exec"), names)
        function: Callable[..., Any] = names["program"]
        return function


def torch_program(graph: KernelGraph, attention: Sequence[Attention] = ()) -> TorchProgram:
    """Return a program of predefined operators as a torch function; `attention`: what is computed by SDPA.

    What torch has as one function is taken so: rms_norm(x) * gain, x / rms(x) over one of the last two axes, x @ w + bias.
    Raises: EmitError for a graph-defined kernel, which torch lacks; MissingRuleError.
    """
    return _Writer(graph, attention).write()


class _Writer:
    def __init__(self, graph: KernelGraph, attention: Sequence[Attention]) -> None:
        self._graph = graph
        self._fused = {one.result: one for one in attention}
        self._covered = {name for one in attention for name in one.covered}
        self._names = {tensor.name: f"x{position}" for position, tensor in enumerate(graph.inputs)}
        self._makers = {tensor.name: node for node in graph.nodes for tensor in node.results}
        uses = [name for node in graph.nodes for name in node.operands] + list(graph.output_names)
        self._single = {name for name in self._makers if uses.count(name) == 1}
        self._lines: list[str] = []
        self._made: dict[str, str] = {}
        self._skipped = self._fused_norms()
        self._biased = self._fused_biases()

    def _fused_norms(self) -> dict[str, str]:
        """Return expressions of results that take a norm in with them; the norm's own result is covered then."""
        found: dict[str, str] = {}
        for node in self._graph.nodes:
            if not isinstance(node, OpNode):
                raise EmitError("torch has no graph-defined kernels", node.name, "time the program it was made from")
            shape = node.results[0].shape
            if node.op == "mul" and len(shape) > 1:
                for norm, gain in (node.operands, node.operands[::-1]):
                    maker = self._makers.get(norm)
                    if (
                        isinstance(maker, OpNode)
                        and maker.op in ("rms_norm", "layer_norm")
                        and norm in self._single
                        and self._graph.tensor(gain).shape == shape[-1:]
                    ):
                        found[node.results[0].name] = f"{maker.results[0].name}|{gain}"
                        self._covered.add(norm)
                        break
            if node.op == "div":
                maker = self._makers.get(node.operands[1])
                if (
                    isinstance(maker, OpNode)
                    and maker.op == "rms"
                    and node.operands[1] in self._single
                    and maker.operands == node.operands[:1]
                    and len(shape) + int(str(maker.attribute_map["axis"])) % len(shape) - len(shape) >= len(shape) - 2
                ):
                    found[node.results[0].name] = node.operands[1]
                    self._covered.add(node.operands[1])
        return found

    def _fused_biases(self) -> dict[str, tuple[str, str]]:
        """Return, for each sum of a product of matrices and a vector, as a linear layer has it: (product, vector)."""
        found: dict[str, tuple[str, str]] = {}
        for node in self._graph.nodes:
            if not isinstance(node, OpNode) or node.op != "add":
                continue
            for product, vector in (node.operands, node.operands[::-1]):
                maker, bias = self._makers.get(product), self._graph.tensor(vector)
                if not isinstance(maker, OpNode) or maker.op != "matmul" or product not in self._single:
                    continue
                operands = [self._graph.tensor(name) for name in maker.operands]
                types = {tensor.dtype for tensor in (*operands, bias, *node.results)}
                are_matrices = {len(tensor.shape) for tensor in operands} == {2} and len(types) == 1
                if are_matrices and bias.shape == node.results[0].shape[-1:] and product not in self._covered:
                    found[node.results[0].name] = (product, vector)
                    self._covered.add(product)
                    break
        return found

    def write(self) -> TorchProgram:
        """Return the text; what was computed before is not computed again."""
        for node in self._graph.nodes:
            assert isinstance(node, OpNode)
            made = [tensor.name for tensor in node.results]
            if made[0] in self._covered:
                continue
            expression = self._expression(node)
            if expression in self._made and len(made) == 1:
                self._names[made[0]] = self._made[expression]
                continue
            for name in made:
                self._names[name] = f"v{len(self._names)}"
            self._made[expression] = self._names[made[0]]
            targets = ", ".join(self._names[name] for name in made) + ("," if len(made) > 1 else "")
            self._lines.append(f"    {targets} = {expression}  # {node.op}: {', '.join(made)}")
        outputs = ", ".join(self._output(name) for name in self._graph.output_names)
        arguments = ", ".join(f"x{position}" for position in range(len(self._graph.inputs)))
        return TorchProgram("\n".join([f"def program({arguments}):", *self._lines, f"    return {outputs}", ""]))

    def _output(self, name: str) -> str:
        """Return an output; what is a view of another tensor, or a number, becomes a tensor of its own."""
        node, shown = self._makers.get(name), self._operand(name, as_number=False)
        if node is None or (isinstance(node, OpNode) and node.spec.kind is OpKind.MOVEMENT and node.op != "concat"):
            return f"{shown}.clone(memory_format=torch.contiguous_format)"
        return shown

    def _operand(self, name: str, *, as_number: bool) -> str:
        node = self._makers.get(name)
        if isinstance(node, OpNode) and node.op == "constant":
            number = torch_rule("constant")((), (), node.attribute_map)
            dtype = self._graph.tensor(name).dtype.value
            return number if as_number else f"torch.full((), {number}, dtype=torch.{dtype}, device='cuda')"
        return self._names[name]

    def _expression(self, node: OpNode) -> str:
        result = node.results[0]
        if result.name in self._fused:
            return self._attention(self._fused[result.name])
        if result.name in self._skipped:
            return self._norm(node, self._skipped[result.name])
        if result.name in self._biased:
            product, vector = self._biased[result.name]
            operands = [self._operand(name, as_number=False) for name in (vector, *self._makers[product].operands)]
            return f"torch.addmm({', '.join(operands)})"
        wants_number = node.op in TAKES_NUMBERS
        operands = [self._operand(name, as_number=wants_number) for name in node.operands]
        if operands and all(is_literal(operand) for operand in operands):
            operands[0] = self._operand(node.operands[0], as_number=False)
        shapes = tuple(self._graph.tensor(name).shape for name in node.operands)
        types = {self._graph.tensor(name).dtype for name in node.operands}
        if node.op == "matmul" and len(types) > 1:
            operands = [f"{operand}.to(torch.{result.dtype.value})" for operand in operands]
        expression = torch_rule(node.op)(operands, shapes, node.attribute_map)
        is_float = node.op == "rms" or (node.op == "l2_norm" and node.attribute_map["eps"] != 0)
        if (types and types != {result.dtype}) or is_float:
            expression = f"({expression}).to(torch.{result.dtype.value})"
        return expression

    def _norm(self, node: OpNode, note: str) -> str:
        norm, _, gain = note.partition("|")
        maker = self._makers[norm]
        assert isinstance(maker, OpNode)
        operand = self._operand(maker.operands[0], as_number=False)
        shape = self._graph.tensor(maker.operands[0]).shape
        if gain:
            return torch_rule(maker.op)([operand, self._operand(gain, as_number=False)], (shape,), maker.attribute_map)
        rule, attributes = torch_rule("rms_norm"), maker.attribute_map
        axis = int(str(attributes["axis"]))
        if axis in (-1, len(shape) - 1):
            return rule([operand], (shape,), attributes)
        turned = (*shape[:-2], shape[-1], shape[-2])
        return f"{rule([f'{operand}.transpose(-1, -2)'], (turned,), attributes)}.transpose(-1, -2)"

    def _attention(self, one: Attention) -> str:
        query, keys, values = (self._operand(name, as_number=False) for name in (one.query, one.keys, one.values))
        rank = len(self._graph.tensor(one.query).shape)
        missing = max(0, 4 - rank)
        lift = "[" + "None, " * missing + "...]" if missing else ""
        drop = "[" + ", ".join(["0"] * missing) + "]" if missing else ""
        keys = f"{keys}.transpose(-1, -2)"
        return f"F.scaled_dot_product_attention({query}{lift}, {keys}{lift}, {values}{lift}, scale=1.0){drop}"
