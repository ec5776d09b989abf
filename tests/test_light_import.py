"""`import workbench` is light: under 0.3 s, and none of the heavy libraries is loaded."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = ("cupy", "torch", "z3", "matplotlib", "pandas", "IPython", "ipywidgets", "anywidget", "graphviz", "scipy")
LIMIT_S = 0.3
PROBE = """
import json, sys, time
start = time.perf_counter()
import workbench
took = time.perf_counter() - start
print(json.dumps([took, [name for name in sys.argv[1:] if name in sys.modules]]))
"""


def probe() -> tuple[float, list[str]]:
    """Return the import time in seconds, and which heavy libraries a fresh interpreter then holds."""
    done = subprocess.run([sys.executable, "-c", PROBE, *HEAVY], capture_output=True, text=True, check=True)
    took, loaded = json.loads(done.stdout)
    return float(took), list(loaded)


def test_import_loads_nothing_heavy() -> None:
    assert probe()[1] == []


def test_import_is_fast() -> None:
    probe()  # writes the byte code
    best = min(probe()[0] for _ in range(5))  # the least of five: other processes only ever add time
    assert best < LIMIT_S, f"import workbench takes {best:.3f} s"


def test_the_probe_sees_a_heavy_library() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import graphviz\n" + PROBE, *HEAVY], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)[1] == ["graphviz"]
