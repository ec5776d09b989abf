"""Forms of programs against the interpreter: both computed at the same random point of a field pair, roots and exp included."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from workbench import programs
from workbench.core.shapes import Shape
from workbench.domains.field_pairs import field_pair
from workbench.domains.finite_field import FieldArithmetic, FieldValue
from workbench.domains.power_table import PowerTable
from workbench.domains.residues import Modulus, Residues
from workbench.errors import NotApplicableError
from workbench.interpret import evaluate
from workbench.interpret.field import FieldDomain, FieldPoint, evaluate_in_field
from workbench.ops.registry import operators
from workbench.ops.spec import Opaque
from workbench.programs.registry import parameters
from workbench.ugraph import value as op
from workbench.ugraph.builder import BlockBuilder, KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.tracing import trace
from workbench.verify.element_rules import ELEMENTWISE, RULES
from workbench.verify.elements import elements_of, have_equal_forms
from workbench.verify.form_atoms import Choice
from workbench.verify.forms import Forms
from workbench.verify.indices import Chosen, Var, constant
from workbench.verify.points import NoMeaningError, Point

PAIR = field_pair("w31")
MODULUS_P, MODULUS_Q = Modulus(PAIR.p), Modulus(PAIR.q)


def input_values(point: Point, number: int, shape: Shape) -> Residues:
    """Return all elements of an input at a point."""
    values: Residues = point._values(number, [axis.astype(np.int64) for axis in np.indices(shape)])
    return values.reshape(shape)


def compare(graph: KernelGraph, seed: int, samples: int = 4) -> int:
    """Return at how many elements form and interpreter were compared (they agreed); 0 if no root existed at the point."""
    rng = np.random.default_rng(seed)
    omega = PAIR.random_omega(rng)
    forms = Forms()
    elements = elements_of(graph, forms)
    powers = PowerTable(omega, PAIR.q, MODULUS_P)
    bare = {"p": Point(MODULUS_P, seed), "q": Point(MODULUS_Q, seed + 500)}
    inputs = [
        FieldPoint(
            FieldValue(*(input_values(bare[side], number, tensor.shape) for side in ("p", "q"))),
            rng.standard_normal(tensor.shape),
        )
        for number, tensor in enumerate(graph.inputs)
    ]
    outputs = evaluate_in_field(graph, inputs, FieldDomain(FieldArithmetic(PAIR, omega)))
    compared = 0
    for output, form, shape, has_q in zip(outputs, elements.outputs, elements.shapes, elements.has_q, strict=True):
        assert output.residues.shape == shape
        assert (output.residues.q is not None) == has_q
        for _ in range(samples):
            index = tuple(int(rng.integers(extent)) for extent in shape)
            fixed = {Var("free", axis, extent): i for axis, (i, extent) in enumerate(zip(index, shape, strict=True))}
            point = Point(
                MODULUS_P, seed, dict(fixed), exponents=Point(MODULUS_Q, seed + 500, dict(fixed)), powers=powers
            )
            try:
                found = point.value(form)
            except NoMeaningError:
                continue
            assert found == int(output.residues.p[index]), (graph, index)
            compared += 1
    return compared


SIZES = {"batch": 3, "heads": 2, "rows": 3, "head_dim": 4, "context": 10, "hidden": 6, "out": 10, "inner": 9, "rank": 4}


def small(name: str, style: str) -> list[KernelGraph]:
    """Return a program and its hand-written µGraphs at sizes that no tile divides."""
    sizes: dict[str, Any] = {parameter.name: SIZES.get(parameter.name, 4) for parameter in parameters(name)}
    if "norm" in name and "context" in sizes:  # every key has a root, and all of them must exist
        sizes |= {"rows": 1, "context": 3}
    return [programs.get(name, style=style, **sizes), *programs.known_good(name, style=style, **sizes)]


@pytest.mark.parametrize("style", ["standard", "mirage"])
@pytest.mark.parametrize("name", programs.names())
def test_forms_of_programs_and_their_tiled_graphs_are_what_the_interpreter_computes(name: str, style: str) -> None:
    for graph in small(name, style):
        needs_roots = any(part in name for part in ("norm", "ntrans"))
        compared = sum(compare(graph, seed) for seed in range(16 if needs_roots else 4))
        assert compared >= (1 if needs_roots else 16), graph


@pytest.mark.parametrize("style", ["standard", "mirage"])
@pytest.mark.parametrize("name", programs.names())
def test_the_hand_written_graphs_have_the_form_of_their_program_at_true_sizes(name: str, style: str) -> None:
    program = programs.get(name, style=style)
    for graph in programs.known_good(name, style=style):
        assert have_equal_forms(program, graph)


MOVES: dict[str, tuple[Callable[..., op.Value], dict[str, Shape]]] = {
    "strided sum": (lambda x: op.sum_to_columns(op.square(x), 3), {"x": (2, 12)}),
    "strided sum of a reshape": (lambda x: op.sum_to_columns(op.reshape(x, (3, 8)), 4), {"x": (4, 6)}),
    "regrouping reshape": (lambda x: op.reshape(op.transpose(op.reshape(x, (8, 3))), (4, 6)), {"x": (6, 4)}),
    "split unevenly": (
        lambda x: op.concat(*op.split(op.transpose(x), 2, axis=-2), axis=-1),
        {"x": (3, 4)},
    ),
    "concat under a sum": (lambda x, y: op.sum(op.square(op.concat(x, y, x))), {"x": (2, 3), "y": (2, 4)}),
    "broadcast": (lambda x, y: op.broadcast(op.sum(x), (2, 3, 5)) * y, {"x": (3, 4), "y": (2, 3, 5)}),
    "batched product": (lambda x, y: x @ y, {"x": (2, 1, 3, 4), "y": (5, 4, 2)}),
    "negative power": (lambda x: op.pow(x, -3), {"x": (2, 2)}),
    "activations": (lambda x: op.silu(x) * op.tanh(x) + op.sigmoid(x), {"x": (2, 3)}),
    "gelu, tanh form": (lambda x: op.gelu(x, approximate="tanh"), {"x": (2, 3)}),
    "means": (lambda x: x - op.mean(x, axis=-2) + op.mean(x), {"x": (4, 3)}),
    "double sums": (lambda x, y: op.sum(op.sum(x * y), axis=-2), {"x": (4, 3), "y": (4, 3)}),
    "constants": (lambda x: (2 * x + Fraction(1, 3)) / 7 - 1, {"x": (3,)}),
}


@pytest.mark.parametrize("name", MOVES)
def test_movement_and_arithmetic(name: str) -> None:
    fn, shapes = MOVES[name]
    assert sum(compare(trace(fn, dtype="float32", **shapes), seed) for seed in range(3)) == 12


def block_graph(rows: int, columns: int, grid: tuple[int, ...], loop: int, kind: str) -> KernelGraph:
    """Return a kernel that folds the columns of X raggedly over the loop, rows ragged over the grid."""
    kernel = KernelBuilder("ragged")
    x = kernel.input("X", (rows, columns), "float32")
    block = kernel.block(x, grid=grid, loop=loop)
    tile = block.load(x, imap=(0,), fmap=1)
    block.save(block.accumulate(tile, kind), omap=(0,))
    kernel.output(*block.finish())
    return kernel.build()


@pytest.mark.parametrize("kind", ["sum_dim", "mean", "rms"])
@pytest.mark.parametrize(("rows", "columns", "grid", "loop"), [(4, 6, (2,), 3), (5, 7, (2,), 3), (7, 11, (3,), 4)])
def test_ragged_tiles(kind: str, rows: int, columns: int, grid: tuple[int, ...], loop: int) -> None:
    graph = block_graph(rows, columns, grid, loop, kind)
    assert sum(compare(graph, seed) for seed in range(12)) >= 4
    whole = {"sum_dim": op.sum, "mean": op.mean, "rms": op.rms}[kind]
    assert have_equal_forms(graph, trace(lambda X: whole(X), X=(rows, columns), dtype="float32"))


def test_a_mean_whose_count_differs_from_block_to_block_has_no_known_factor() -> None:
    kernel = KernelBuilder("mean of parts")
    x = kernel.input("X", (2, 7), "float32")
    block = kernel.block(x, grid=(2,))
    block.save(block.accumulate(block.load(x, imap=(1,)), "mean"), omap=(1,))
    kernel.output(*block.finish())
    graph = kernel.build()  # parts of 4 and 3 columns
    wrong = trace(
        lambda X: op.reshape(op.sum(op.reshape(op.concat(X, 0 * op.sum(X)), (2, 2, 4))), (2, 2)) / 4, X=(2, 7)
    )
    assert not have_equal_forms(graph, wrong)
    assert elements_of(graph, Forms()).shapes == ((2, 2),)


def test_pieces_are_alternatives_and_positions_of_maxima_are_shared() -> None:
    forms = Forms()
    (form,) = elements_of(trace(lambda x: op.relu(x) + op.max(x) - op.max(x), x=(2, 3)), forms).outputs
    (atom,) = form.atoms()
    assert isinstance(atom, Choice)
    assert [alternative.terms == () for alternative in atom.alternatives] == [True, False]


def test_every_operator_has_a_rule() -> None:
    for spec in operators():
        has_rule = spec.name in RULES or spec.name in ELEMENTWISE or spec.expand is not None
        assert has_rule or isinstance(spec.field, Opaque), spec.name


def decay(loop: int, factor: Callable[[op.Value], op.Value]) -> KernelGraph:
    """Return acc <- acc * factor(r) + x over the columns of X and R, two at a time."""
    kernel = KernelBuilder("decay")
    x, r = kernel.input("X", (2, 2 * loop), "float32"), kernel.input("R", (2, 2 * loop), "float32")
    block = kernel.block(x, r, loop=loop)
    block.save(block.accumulate(block.load(x, fmap=1), "rescale", rescale=factor(op.sum(block.load(r, fmap=1)))))
    kernel.output(*block.finish())
    return kernel.build()


@pytest.mark.parametrize("factor", [op.square, op.exp, lambda r: op.exp(r - 1)])
def test_rescaled_accumulators_whose_factors_do_not_telescope(factor: Callable[[op.Value], op.Value]) -> None:
    assert sum(compare(decay(3, factor), seed) for seed in range(3)) == 12
    with pytest.raises(NotApplicableError, match="12 iterations"):
        elements_of(decay(12, factor), Forms())


def test_rescaling_by_a_running_maximum_leaves_the_last_maximum() -> None:
    """acc <- acc * exp(m_old - m_new) + sum exp(x - m_new) is sum exp(x - m) with m the maximum after the last step."""
    kernel = KernelBuilder("running")
    x = kernel.input("X", (2, 12), "float32")
    block = kernel.block(x, loop=3)
    tile = block.load(x, fmap=1)
    maximum, change = block.running_max(tile)
    block.save(block.accumulate(op.sum(op.exp(tile - maximum)), "rescale", rescale=op.exp(change)))
    kernel.output(*block.finish())
    forms = Forms()
    (form,) = elements_of(kernel.build(), forms).outputs
    chosen = {digit for index in forms.indices(form) for _, digit in index.digits if isinstance(digit, Chosen)}
    assert {digit.name.rpartition(", ")[2] for digit in chosen} == {"iteration", "element"}
    assert {digit.arguments[-1] for digit in chosen} == {constant(2)}
    plain = trace(lambda X: op.sum(op.exp(X)), X=(2, 12), dtype="float32")
    (total,) = elements_of(plain, forms).outputs
    factor = forms.div(form, total)  # exp(-m)
    assert factor.terms[0][1] == 1
    assert len(factor.terms) == len(factor.terms[0][0]) == 1


def kept_maximum(kept: Callable[[op.Value, op.Value, op.Value], op.Value], loop: int) -> KernelGraph:
    """Return sums of exponentials less a running maximum, by parts of columns, put together by maxima that are kept beside.

    kept: makes what the accumulator of maxima folds, of tile, running maximum and its change.
    """
    kernel = KernelBuilder("parts")
    x = kernel.input("X", (2, 24), "float32")
    block = kernel.block(x, grid=(2,), loop=loop)
    tile = block.load(x, imap=(1,), fmap=1)
    maximum, change = block.running_max(tile)
    block.save(block.accumulate(op.sum(op.exp(tile - maximum)), "rescale", rescale=op.exp(change)), omap=(1,))
    block.save(block.accumulate(kept(tile, maximum, change), "max"), omap=(1,))
    sums, maxima = block.finish()
    kernel.output(op.sum(sums * op.exp(maxima)))
    return kernel.build()


@pytest.mark.parametrize("loop", [1, 3, 4])
def test_the_largest_running_maximum_is_the_last(loop: int) -> None:
    """So sums over parts, rescaled by it, are the whole sum, however many iterations a part takes."""
    plain = trace(lambda X: op.sum(op.exp(X)), X=(2, 24), dtype="float32")
    graph = kept_maximum(lambda tile, maximum, change: maximum, loop)
    assert have_equal_forms(plain, graph)
    rng = np.random.default_rng(loop)
    inputs = [rng.normal(size=(2, 24))]
    np.testing.assert_allclose(evaluate(graph, inputs)[0], evaluate(plain, inputs)[0], rtol=1e-12)


def test_other_values_of_a_loop_are_not_taken_from_its_last_iteration() -> None:
    plain = trace(lambda X: op.sum(op.exp(X)), X=(2, 24), dtype="float32")
    for kept in (
        lambda tile, maximum, change: change,
        lambda tile, maximum, change: op.neg(maximum),
        lambda tile, maximum, change: op.sum(tile),
    ):
        graph = kept_maximum(kept, 3)
        assert not have_equal_forms(plain, graph)
        inputs = [np.random.default_rng(0).normal(size=(2, 24))]
        assert not np.allclose(evaluate(graph, inputs)[0], evaluate(plain, inputs)[0])
    for name in ("sum", "change"):
        kernel = KernelBuilder("largest")
        block = kernel.block(kernel.input("X", (2, 24), "float32"), loop=3)
        tile = block.load(0, fmap=1)
        block.save(block.accumulate(op.sum(tile) if name == "sum" else block.running_max(tile)[1], "max"))
        kernel.output(*block.finish())
        (form,) = elements_of(kernel.build(), Forms()).outputs
        assert "'max of " in repr(form)  # an iteration that is chosen, not the last


def of_first(columns: int, folded: Callable[[BlockBuilder, op.Value], op.Value]) -> KernelGraph:
    """Return what a loop of three iterations makes of the first of 30 columns: five are cut 2, 2, 1, six 2, 2, 2."""
    kernel = KernelBuilder("first")
    part = op.split(kernel.input("X", (2, 30), "float32"), 30 // columns, axis=-1)[0]
    block = kernel.block(part, loop=3)
    block.save(folded(block, block.load(part, fmap=1)))
    kernel.output(*block.finish())
    return kernel.build()


def softmax_total(block: BlockBuilder, tile: op.Value) -> op.Value:
    maximum, change = block.running_max(tile)
    return block.accumulate(op.exp(tile - maximum), "rescale_sum", rescale=op.exp(change))


@pytest.mark.parametrize(
    "folded",
    [
        lambda block, tile: block.accumulate(op.max(tile), "max"),
        lambda block, tile: block.accumulate(tile, "max_dim"),
        lambda block, tile: block.accumulate(block.running_max(tile)[0], "max"),
        softmax_total,
    ],
    ids=["max", "max_dim", "running_max", "rescale_sum"],
)
def test_a_tile_that_ends_early_is_folded_to_its_end(folded: Callable[[BlockBuilder, op.Value], op.Value]) -> None:
    """The sixth column, the largest here, stands where the last tile of five would go on."""
    five, six = of_first(5, folded), of_first(6, folded)
    assert have_equal_forms(five, of_first(5, folded))
    assert not have_equal_forms(five, six)
    inputs = [np.random.default_rng(0).normal(size=(2, 30))]
    inputs[0][:, 5] = 9
    assert not np.allclose(evaluate(five, inputs)[0], evaluate(six, inputs)[0])


@pytest.mark.parametrize("columns", [5, 6])
def test_the_total_of_an_online_softmax_leaves_its_maximum(columns: int) -> None:
    def shifted(block: BlockBuilder, tile: op.Value) -> op.Value:
        maximum = block.accumulate(block.running_max(tile)[0], "max")
        return softmax_total(block, tile) * op.exp(maximum)

    plain = trace(lambda X: op.sum(op.exp(op.split(X, 30 // columns, axis=-1)[0])), X=(2, 30), dtype="float32")
    graph = of_first(columns, shifted)
    assert have_equal_forms(plain, graph)
    inputs = [np.random.default_rng(0).normal(size=(2, 30))]
    np.testing.assert_allclose(evaluate(graph, inputs)[0], evaluate(plain, inputs)[0], rtol=1e-12)


@pytest.mark.parametrize("kind", ["max_dim", "running_max"])
def test_the_largest_of_no_elements_is_not_that_of_one(kind: str) -> None:
    """Five columns in two parts of three iterations: the last of them has none, where six columns have the sixth."""

    def largest_of_parts(columns: int) -> KernelGraph:
        kernel = KernelBuilder("parts")
        part = op.split(kernel.input("X", (2, 30), "float32"), 30 // columns, axis=-1)[0]
        loop = 3 if kind == "max_dim" else 1
        block = kernel.block(part, grid=(6 // loop,), loop=loop)
        tile = block.load(part, imap=(1,), fmap=1)
        largest = (
            block.accumulate(tile, kind) if kind == "max_dim" else block.accumulate(block.running_max(tile)[0], "max")
        )
        block.save(largest, omap=(1,))
        kernel.output(*block.finish())
        return kernel.build()

    five, six = largest_of_parts(5), largest_of_parts(6)
    with pytest.raises(NotApplicableError, match="may have none"):
        elements_of(five, Forms())
    assert not have_equal_forms(five, six)
    assert have_equal_forms(six, largest_of_parts(6))
