"""The search reads what is computed: names, the order of nodes and of commuting operands change nothing in what is found."""

from __future__ import annotations

import random

import pytest

from tests.unit.search.fused_graphs import CASES, Fused
from workbench.search.engine import search
from workbench.search.space import Space
from workbench.search.summary import collect
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import OpNode
from workbench.ugraph.value import Value


def told_otherwise(program: KernelGraph, seed: int) -> KernelGraph:
    """Return the same computation under other names, in another order, with operands that commute exchanged."""
    rng = random.Random(seed)
    kernel = KernelBuilder("another name")
    values: dict[str, Value] = {}
    for number, tensor in enumerate(program.inputs):
        name = f"{rng.choice('abcxyz')}{number}_{rng.randrange(1000)}"
        values[tensor.name] = kernel.input(name, tensor.shape, tensor.dtype, tensor.strides)
    waiting = list(program.nodes)
    while waiting:
        ready = [node for node in waiting if all(operand in values for operand in node.operands)]
        node = rng.choice(ready)
        assert isinstance(node, OpNode)
        waiting.remove(node)
        operands = [values[name] for name in node.operands]
        if node.spec.commutative and rng.random() < 0.5:
            operands.reverse()
        attributes: dict[str, object] = dict(node.attribute_map)
        made = kernel.apply_all(node.op, *operands, name=f"n{rng.randrange(10**9)}", **attributes)
        values.update(zip((tensor.name for tensor in node.results), made, strict=True))
    kernel.output(*(values[name] for name in program.output_names))
    return kernel.build()


def structures(program: KernelGraph, space: Space) -> set[str]:
    found = collect(search(program, space=space), space)
    assert not found.refused
    return {one.structure_hash for one in found.structures}


@pytest.mark.parametrize("case", [case for case in CASES if not case.is_wide], ids=lambda case: case.name)
def test_another_telling_of_a_program_has_the_same_structures(case: Fused) -> None:
    program = case.program()
    expected = structures(program, Space())
    assert expected
    assert structures(told_otherwise(program, len(case.name)), Space()) == expected


@pytest.mark.parametrize("case", [case for case in CASES if case.is_wide], ids=lambda case: case.name)
def test_another_telling_of_a_wide_program_has_the_same_structures(case: Fused) -> None:
    program, space = case.program(), Space(max_block_graphs=1, max_kernel_ops=1)
    assert structures(told_otherwise(program, 7), space) == structures(program, space)


def test_extents_change_nothing() -> None:
    for sizes in ({"X": (3, 30), "G": (30,), "W": (30, 7)}, {"X": (64, 128), "G": (128,), "W": (128, 256)}):
        (case,) = [case for case in CASES if case.name == "sizes that nothing divides"]
        other = Fused(case.name, case.formula, sizes, case.build)
        assert structures(other.program(), Space()) == structures(case.program(), Space())


@pytest.mark.parametrize(
    "name", ["bias and residual", "GELU MLP over the hidden axis", "one of three linears after a norm: B"]
)
def test_inputs_in_another_order_have_as_many_structures(name: str) -> None:
    (case,) = [case for case in CASES if case.name == name]
    kernel = KernelBuilder()
    values = {given: kernel.input(given, case.sizes[given]) for given in reversed(case.sizes)}
    result = case.formula(*(values[given] for given in case.sizes))
    assert isinstance(result, Value)
    kernel.output(result)
    assert len(structures(kernel.build(), Space())) == len(structures(case.program(), Space()))
