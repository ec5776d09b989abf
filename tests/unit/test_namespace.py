"""`import workbench as wb`: what is there, that it is lazy, and what is said of a name that is not built yet."""

from __future__ import annotations

import inspect
import subprocess
import sys

import numpy as np
import pytest

import workbench as wb
from workbench.ugraph import value

FIXED = [
    "programs", "evaluate", "load", "trace", "program", "matmul", "exp", "log", "sqrt", "rsqrt", "square", "silu",
    "gelu", "sigmoid", "tanh", "relu", "abs", "clamp", "maximum", "minimum", "pow", "sum", "mean", "max",
    "rms_norm", "softmax", "l2_norm", "layer_norm", "transpose", "reshape", "concat", "split", "broadcast",
    "KernelBuilder", "BlockBuilder", "KernelGraph", "BlockGraph", "ThreadGraph", "superoptimize",
]  # fmt: skip


@pytest.mark.parametrize("name", FIXED)
def test_fixed_names_are_there(name: str) -> None:
    assert getattr(wb, name) is not None
    assert name in dir(wb)
    assert name in wb.__all__


@pytest.mark.parametrize("name", sorted(set(wb.__all__)))
def test_every_public_name_loads(name: str) -> None:
    assert getattr(wb, name) is not None


def test_operators_are_those_programs_are_written_with() -> None:
    assert sorted(wb.OPERATORS) == sorted(function.__name__ for function in value.FUNCTIONS)
    for name in wb.OPERATORS:
        assert getattr(wb, name) is getattr(value, name)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'verifi'"):
        _ = wb.verifi


def test_a_subpackage_does_not_hide_a_function_of_its_name() -> None:
    script = (
        "import workbench, workbench.programs, workbench.verify, workbench.search, sys\n"
        "assert 'workbench.verify' in sys.modules\n"
        "assert inspect.isfunction(workbench.verify) and inspect.isfunction(workbench.search)\n"
        "from workbench.verify import __doc__ as text\n"
        "assert text\n"
        "assert inspect.ismodule(workbench.programs)\n"
    )
    subprocess.run([sys.executable, "-c", "import inspect\n" + script], check=True)


def test_star_import_brings_every_public_name() -> None:
    subprocess.run(
        [sys.executable, "-c", "from workbench import *\nassert callable(matmul) and programs.names()"], check=True
    )


def test_importing_loads_no_submodule_but_the_display_hook() -> None:
    script = (
        "import workbench, sys; print([m for m in sys.modules if m.startswith('workbench.')], 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['workbench.display'] False"


def test_the_first_lines_of_a_notebook_work() -> None:
    graph = wb.trace(lambda X, Y: wb.exp(X) @ Y, X=(4, 8), Y=(8, 16), dtype="float32")
    x, y = np.linspace(-1, 1, 32).reshape(4, 8), np.linspace(0, 1, 128).reshape(8, 16)
    (found,) = wb.evaluate(graph, [x, y])
    np.testing.assert_allclose(found, np.exp(x) @ y, rtol=1e-13)


def test_graphs_show_themselves_as_pictures() -> None:
    bundle = wb.programs.get("softmax")._repr_mimebundle_()
    assert "<svg" in bundle["image/svg+xml"]
    assert bundle["text/plain"].startswith("kernel_graph")


def test_version_is_the_packages() -> None:
    assert wb.__version__ == "0.1.0"
    assert inspect.getdoc(wb)
