"""Run one variant of a row of the speed table a few times, for a profiler.

    ncu --clock-control none --set full -k regex:attention -s 2 -c 1 python benchmarks/gpu_profile.py ROW VARIANT

ROW and VARIANT: words of the label and the name (`gpu_variants.py`), all of which must be in it; the first one that fits.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.gpu_builds import ARCH, build_variant
from benchmarks.gpu_timing import input_sets
from benchmarks.gpu_variants import all_rows
from workbench.device.executable import compile_program
from workbench.device.launch import load_cupy


def main(row: str, words: str) -> None:
    """Run it four times on different inputs."""
    variants = [variant for found in all_rows(row) for variant in found.variants]
    variant = next(v for v in variants if all(f" {word} " in f" {v.name} " for word in words.split()))
    built = build_variant(variant)
    if built.program is None:
        sys.exit(built.refusal)
    print(variant.row, variant.name, built.needs)
    cupy = load_cupy()
    executable = compile_program(built.program, variant.graph, ARCH)
    for inputs, outputs in input_sets(executable, cupy)[:4]:
        executable(*inputs, out=outputs)
    cupy.cuda.Device().synchronize()


if __name__ == "__main__":
    main(*sys.argv[1:])
