"""Every graph that Mirage ships in the seven files: it loads, and computes its program (or does not, QKNorm's).

All 293 graphs are evaluated in float64 at the full shapes, against the program written in NumPy here: about 20 s on one
core, 12 s of them the 190 graphs of QKNorm.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.core.dtypes import DType
from workbench.interpret import evaluate
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import AccumulatorKind
from workbench.ugraph.serialize import dumps, load, loads

Array = np.ndarray[Any, Any]


def rms_norm(x: Array) -> Array:
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True)))


def attention(q: Array, k: Array, v: Array) -> Array:
    weights = np.exp(q @ k)
    return np.asarray(weights / weights.sum(-1, keepdims=True) @ v)


def gated_mlp(x: Array, w1: Array, w2: Array) -> Array:
    gate = x @ w1
    return np.asarray(gate / (1 + np.exp(-gate)) * (x @ w2))


# file -> number of graphs, shapes of the inputs, scale of the random inputs, the program
FILES: dict[str, tuple[int, list[tuple[int, ...]], float, Callable[..., Array]]] = {
    "gated_mlp": (32, [(8, 4096), (4096, 4096), (4096, 4096)], 0.05, gated_mlp),
    "gqa_bs1": (28, [(2, 256, 64), (2, 64, 4096), (2, 4096, 64)], 0.3, attention),
    "lora": (4, [(16, 256), (256, 4096), (256, 16), (16, 4096)], 0.05, lambda x, w, a, b: x @ w + x @ a @ b),
    "mqa_bs1": (12, [(1, 1024, 64), (1, 64, 4096), (1, 4096, 64)], 0.3, attention),
    "ntrans_bs1": (9, [(8, 4096)] * 3, 1.0, lambda h, x, alpha: rms_norm(x + alpha * (rms_norm(h) + x))),
    "qknorm_gqa_bs1": (
        190,
        [(2, 256, 64), (2, 64, 4096), (2, 4096, 64)],
        0.3,
        lambda q, k, v: attention(rms_norm(q), k, rms_norm(v)),
    ),
    "rmsnorm_bs1": (18, [(2, 4096), (4096, 6144)], 0.05, lambda x, w: rms_norm(x) @ w),
}
WRONG = "qknorm_gqa_bs1"


def graphs_of(shared_data: Path, name: str) -> list[KernelGraph]:
    folder = shared_data / "mirage_mugraphs"
    if not folder.is_dir():
        pytest.skip(f"no folder mirage_mugraphs in {shared_data}")
    return load(folder / f"{name}.json")


@pytest.mark.parametrize("name", FILES)
def test_every_graph_loads_with_its_shapes_and_survives_our_own_format(shared_data: Path, name: str) -> None:
    graphs = graphs_of(shared_data, name)
    count, shapes, _, _ = FILES[name]
    assert len(graphs) == count
    for graph in graphs:
        assert [tensor.shape for tensor in graph.inputs] == shapes
        assert {tensor.dtype for tensor in (*graph.inputs, *graph.outputs)} == {DType.FLOAT16}
        assert len(graph.outputs) == 1
    assert loads(dumps(graphs)) == graphs


def test_the_files_hold_what_is_known_of_them(shared_data: Path) -> None:
    """Counts over the files, taken from their text."""
    for name in FILES:
        graphs = graphs_of(shared_data, name)
        text = (shared_data / "mirage_mugraphs" / f"{name}.json").read_text(encoding="utf-8")
        names = Counter(word.split('"')[1] for word in text.split('"op_type":')[1:])
        kinds = Counter(a.kind for g in graphs for node in g.graph_defined for a in node.block.accumulators)
        assert kinds[AccumulatorKind.SUM] == names["tb_accum_nored_op"]
        assert kinds[AccumulatorKind.SUM_DIM] == names["tb_accum_red_ld_sum_op"]
        assert kinds[AccumulatorKind.RMS] == names["tb_accum_red_ld_rms_op"]
        assert kinds[AccumulatorKind.SUM_TO_COLUMNS] == names["tb_accum_redtox_ld_sum_op"]
        assert sum(len(g.graph_defined) for g in graphs) == names["kn_customized_op"]
        assert sum(len(node.block.savers) for g in graphs for node in g.graph_defined) == names["tb_output_op"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == WRONG else name for name in FILES]
)
def test_every_graph_computes_its_program_but_those_of_qknorm(
    shared_data: Path, name: str, rng: np.random.Generator
) -> None:
    graphs = graphs_of(shared_data, name)
    _, shapes, scale, program = FILES[name]
    inputs = [scale * rng.standard_normal(shape) for shape in shapes]
    expected = program(*inputs)
    errors = []
    for graph in graphs:
        (found,) = evaluate(graph, inputs)
        errors.append(float(np.linalg.norm(found - expected) / np.linalg.norm(expected)))
    if name == WRONG:
        assert min(errors) > 0.5
    else:
        assert max(errors) < 1e-9


def test_the_rms_norm_graphs_take_little_time_and_memory(shared_data: Path, repository: Path) -> None:
    """The 18 graphs of rmsnorm_bs1 at full shape, in a process of their own: under 10 s and 2 GB together."""
    path = shared_data / "mirage_mugraphs" / "rmsnorm_bs1.json"
    program = f"""
import json, resource, sys, time
import numpy as np
from workbench.interpret import evaluate
from workbench.ugraph.serialize import load
start = time.process_time()
graphs = load({str(path)!r})
rng = np.random.default_rng(0)
inputs = [0.05 * rng.standard_normal(tensor.shape) for tensor in graphs[0].inputs]
norms = [float(np.linalg.norm(evaluate(graph, inputs)[0])) for graph in graphs]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024)
print(json.dumps([len(norms), max(norms) - min(norms), time.process_time() - start, peak]))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60, cwd=repository
    )
    count, spread, seconds, peak_mb = json.loads(ran.stdout)
    assert count == 18
    assert spread < 1e-9
    assert seconds < 10, f"{seconds:.1f} s"
    assert peak_mb < 2048, f"{peak_mb:.0f} MB"
