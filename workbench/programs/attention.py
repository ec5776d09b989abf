"""The attention programs: grouped, multi-head, multi-query, decoding, with normalised operands, with the row maximum.

Inputs are Q (groups, rows, head_dim), K (groups, head_dim, context) and V (groups, context, head_dim), where
groups = batch * heads counts the heads of K and V: all queries that share a key head stand in one group as its rows.
Invariant: Q is taken as already scaled, so no program here multiplies the logits Q @ K by 1/sqrt(head_dim).
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial

from workbench.programs.attention_graphs import Operands, known_good, known_good_normalised, known_good_safe
from workbench.programs.record import Instance, Parameter, Program, Style
from workbench.ugraph import value
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.value import Value, exp, rms, rms_norm

EPS = Fraction(1, 10**6)


def _formula(instance: Instance, q: Value, k: Value, v: Value) -> Value:
    if instance.style is Style.MIRAGE:
        weights = exp(q @ k)
        return (weights / value.sum(weights)) @ v
    return value.softmax(q @ k) @ v


def _safe_formula(instance: Instance, q: Value, k: Value, v: Value) -> Value:
    logits = q @ k
    weights = exp(logits - value.max(logits))
    return (weights / value.sum(weights)) @ v


def _normalise(instance: Instance, operands: Operands) -> Operands:
    """Return Q and K normalised over the head dimension, or in Mirage's style Q and V, as its benchmark has it."""
    q, k, v = operands
    if instance.style is Style.MIRAGE:
        return rms_norm(q, eps=0), k, rms_norm(v, eps=0)
    return rms_norm(q, eps=EPS), k / rms(k, axis=-2, eps=EPS), v


def _normalised_formula(instance: Instance, q: Value, k: Value, v: Value) -> Value:
    return _formula(instance, *_normalise(instance, (q, k, v)))


def _known_good(instance: Instance) -> list[KernelGraph]:
    return known_good(instance, lambda operands: operands)


def _known_good_normalised(instance: Instance) -> list[KernelGraph]:
    prepare = partial(_normalise, instance)
    if instance.style is Style.MIRAGE:
        return known_good(instance, prepare)
    return known_good_normalised(instance, prepare, EPS)


def _sizes(heads: int, rows: int, head_dim: int, context: int) -> tuple[Parameter, ...]:
    return (
        Parameter("batch", 1, "sequences; each brings its own groups"),
        Parameter("heads", heads, "key and value heads of a sequence"),
        Parameter("rows", rows, "query rows of a group: query heads per key head times query positions"),
        Parameter("head_dim", head_dim, "width of a head"),
        Parameter("context", context, "keys of a sequence, the axis the softmax runs over"),
    )


_INPUTS = {
    "Q": ("batch*heads", "rows", "head_dim"),
    "K": ("batch*heads", "head_dim", "context"),
    "V": ("batch*heads", "context", "head_dim"),
}
_EQUATIONS = {
    Style.STANDARD: "softmax(Q @ K) @ V",
    Style.MIRAGE: "(E / sum(E)) @ V, E = exp(Q @ K)",
}
_SOURCE = (
    "Ainslie et al., GQA, EMNLP 2023; Dao et al., FlashAttention, and Flash-Decoding, 2023; Mirage OSDI'25, section 8"
)


def _attention(
    name: str,
    summary: str,
    sizes: tuple[Parameter, ...],
    shapes: str,
    *,
    equations: dict[Style, str] = _EQUATIONS,
    formula: Callable[..., Value] = _formula,
    graphs: Callable[[Instance], list[KernelGraph]] = _known_good,
) -> Program:
    return Program(
        name=name,
        summary=summary,
        equations=equations,
        inputs=_INPUTS,
        parameters=sizes,
        formula=formula,
        known_good=graphs,
        source=f"{_SOURCE}; {shapes}",
    )


GQA = _attention(
    "gqa",
    "Grouped-query attention: the query heads of a group share one key and value head.",
    _sizes(2, 256, 64, 4096),
    "shapes of Mirage's benchmark group_query_attention.py",
)
MHA = _attention(
    "mha",
    "Multi-head attention: every query head has its own keys and values.",
    _sizes(32, 16, 64, 4096),
    "shapes of Mirage's benchmark multi_head_attention.py",
)
MQA = _attention(
    "mqa",
    "Multi-query attention: all query heads share one key and value head.",
    _sizes(1, 1024, 64, 4096),
    "shapes of Mirage's benchmark multi_query_attention.py",
)
GQA_DECODE = _attention(
    "gqa_decode",
    "Grouped-query attention while decoding: one query position, eight query heads a group.",
    _sizes(2, 8, 128, 8192),
    "LLaMA-3-70B on four cards (2 key heads, 8 query heads each) at a context of 8192",
)
QK_NORM_ATTENTION = _attention(
    "qk_norm_attention",
    "Attention whose queries and keys are normalised over the head dimension first.",
    _sizes(2, 256, 64, 4096),
    "Chameleon's QK norm; Mirage's benchmark qknorm_gqa.py normalises Q and V instead",
    equations={
        Style.STANDARD: "softmax(N(Q) @ N(K)) @ V, N(x) = x / sqrt(mean(x^2) + 1e-6) over head_dim",
        Style.MIRAGE: "(E / sum(E)) @ N(V), E = exp(N(Q) @ K), N(x) = x / sqrt(mean(x^2)) over head_dim",
    },
    formula=_normalised_formula,
    graphs=_known_good_normalised,
)
ATTENTION_SAFE = _attention(
    "attention_safe",
    "Attention that subtracts each row's largest logit before the exponential, so that nothing overflows.",
    _sizes(2, 256, 64, 4096),
    "Milakov and Gimelshein, Online normalizer calculation for softmax, 2018; Mirage has no such benchmark, so both "
    "styles are one",
    equations={style: "(E / sum(E)) @ V, E = exp(S - max(S)), S = Q @ K" for style in Style},
    formula=_safe_formula,
    graphs=known_good_safe,
)
