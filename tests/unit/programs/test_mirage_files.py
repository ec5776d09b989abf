"""What Mirage saved beside what the literature knows: sizes read off its files, and structures that both have."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench import programs
from workbench.ugraph.serialize import load


@pytest.mark.parametrize(
    ("file", "name", "sizes"),
    [
        ("rmsnorm_bs1", "rms_norm_linear", {"batch": 2, "hidden": 4096, "out": 6144}),
        ("gated_mlp", "gated_mlp", {"batch": 8, "hidden": 4096, "out": 4096}),
        ("ntrans_bs1", "ntrans", {"batch": 8, "hidden": 4096}),
        ("gqa_bs1", "gqa", {"batch": 1, "heads": 2, "rows": 256, "head_dim": 64, "context": 4096}),
        ("mqa_bs1", "mqa", {"batch": 1, "heads": 1, "rows": 1024, "head_dim": 64, "context": 4096}),
    ],
)
def test_mirage_found_the_first_known_good_structure(
    shared_data: Path, file: str, name: str, sizes: dict[str, int]
) -> None:
    graphs = load(shared_data / "mirage_mugraphs" / f"{file}.json")
    _, inferred = programs.infer_sizes(name, [tensor.shape for tensor in graphs[0].inputs])
    assert inferred == sizes
    best = programs.known_good(name, "mirage", "float16", **inferred)[0]
    assert best.structure_hash in {graph.structure_hash for graph in graphs}


def test_mirage_found_no_known_good_structure_of_qk_norm(shared_data: Path) -> None:
    graphs = load(shared_data / "mirage_mugraphs" / "qknorm_gqa_bs1.json")  # all of them wrong
    good = {graph.structure_hash for graph in programs.known_good("qk_norm_attention", "mirage")}
    assert not good & {graph.structure_hash for graph in graphs}
