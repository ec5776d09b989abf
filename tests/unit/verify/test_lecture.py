"""The verification claims of the course lecture: attention written several ways, and what small fields let through."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.domains.field_pairs import FieldPair, field_pair
from workbench.domains.finite_field import FieldArithmetic
from workbench.ugraph import value as op
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.tracing import trace
from workbench.ugraph.value import Value
from workbench.verify.compare import verify
from workbench.verify.sampling import Sampler

KEYS, DEPTH, BLOCKS = 32, 8, 4  # one query, 32 keys, head dimension 8, keys in 4 blocks, as in the lecture
SHAPES = {"q": (1, DEPTH), "K": (DEPTH, KEYS), "V": (KEYS, DEPTH), "m": (1, BLOCKS)}


def attention(q: Value, K: Value, V: Value, m: Value) -> Value:
    e = op.exp(q @ K)
    return (e @ V) / op.sum(e) + 0 * op.sum(m)


def blockwise(q: Value, K: Value, V: Value, m: Value, *, correct: bool = True, shifted: bool = True) -> Value:
    """Each block has its own shift; the merge rescales by the shifts (or forgets to)."""
    keys = op.split(K, BLOCKS, axis=-1)
    values = op.split(V, BLOCKS, axis=0)
    shifts = op.split(m, BLOCKS, axis=-1)
    top: Value | None = None
    bottom: Value | None = None
    for k, v, shift in zip(keys, values, shifts, strict=True):
        e = op.exp(q @ k - shift) if shifted else op.exp(q @ k)
        factor = op.exp(shift) if shifted and correct else None
        o, s = e @ v, op.sum(e)
        if factor is not None:
            o, s = o * factor, s * factor
        top = o if top is None else top + o
        bottom = s if bottom is None else bottom + s
    assert top is not None
    assert bottom is not None
    return top / bottom + 0 * op.sum(m)


def averaged(q: Value, K: Value, V: Value, m: Value) -> Value:
    """The wrong merge: the blocks' normalised results are averaged."""
    parts = [
        op.softmax(q @ k) @ v for k, v in zip(op.split(K, BLOCKS, axis=-1), op.split(V, BLOCKS, axis=0), strict=True)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total / BLOCKS + 0 * op.sum(m)


def graph(fn: object) -> KernelGraph:
    return trace(fn, dtype="float32", **SHAPES)  # type: ignore[arg-type]


def test_attention_in_blocks_with_any_shift_is_attention() -> None:
    for candidate in (
        graph(lambda q, K, V, m: blockwise(q, K, V, m, shifted=False)),
        graph(blockwise),
        graph(lambda q, K, V, m: (op.exp(q @ K - 3) @ V) / op.sum(op.exp(q @ K - 3)) + 0 * op.sum(m)),
    ):
        verdict = verify(graph(attention), candidate)
        assert verdict.kind == "equal", verdict.describe()
        assert verdict.proved or (verdict.error_bound or 1) <= 1e-9


def test_wrong_merges_are_refused_with_a_witness() -> None:
    for candidate in (graph(averaged), graph(lambda q, K, V, m: blockwise(q, K, V, m, correct=False))):
        verdict = verify(graph(attention), candidate)
        assert verdict.kind == "different"
        assert verdict.witness is not None


def accepts(pair: FieldPair, draws: int, seed: int) -> tuple[float, int]:
    """Return (share of single elements that agree, tests in which all do) for the averaged merge against attention."""
    rng = np.random.default_rng(seed)
    elements, whole, shares = 0, 0, 0.0
    pair_of = (graph(attention), graph(averaged))
    for number in range(draws):
        arithmetic = FieldArithmetic(pair, pair.random_omega(rng))
        draw = Sampler(pair_of, arithmetic, rng).draw(number)
        agree = ~arithmetic.differs(draw.outputs[0][0].residues, draw.outputs[1][0].residues)
        elements += agree.size
        shares += float(agree.sum())
        whole += bool(agree.all())
    return shares / elements, whole


@pytest.mark.parametrize(("name", "draws"), [("paper", 200), ("exercise", 120)])
def test_single_elements_slip_through_small_fields_at_about_one_in_p_all_of_them_hardly_ever(
    name: str, draws: int
) -> None:
    pair = field_pair(name)
    share, whole = accepts(pair, draws, seed=4)
    expected = 1 / pair.p
    spread = np.sqrt(expected / (draws * DEPTH))
    assert abs(share - expected) < 4 * spread + (0.6 * expected if name == "exercise" else 0)
    # in Z_11 x Z_5 the four blocks' denominators are equal now and then, and then the average is right everywhere
    assert whole == 0 if name == "paper" else whole < 0.05 * draws
