"""Programs written in Python, named on a command line as FILE.py:FUNCTION. Invariant: running one is the user's choice.

The function is one that `@workbench.program` made, one whose parameters are annotated with axes in the same way, a plain
function of tensors (`--set` then gives a shape per parameter, X=16x64), or the name of a finished graph.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path

from workbench.errors import UnknownNameError, UsageError, WorkbenchError
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.tracing import TracedProgram, program, trace


def names_python(target: str) -> bool:
    """Return whether a target is FILE.py:FUNCTION."""
    path, separator, name = target.rpartition(":")
    return bool(separator) and path.endswith(".py") and name.isidentifier()


def read_python(target: str, settings: Mapping[str, str], dtype: str | None) -> KernelGraph:
    """Return the graph of FILE.py:FUNCTION at the sizes of `--set`.

    Raises: UsageError for a file that fails when it is run, or a size that is no number; UnknownNameError; as `trace`.
    """
    path, _, name = target.rpartition(":")
    found = _attribute(Path(path), name)
    given = dict(settings)
    dtype = _one_dtype(dtype, given.pop("dtype", None))
    if isinstance(found, KernelGraph):
        if given or dtype:
            raise UsageError(f"{target} is a graph with sizes of its own; leave --set and --dtype away")
        return found
    if not callable(found):
        raise UsageError(f"{target} is a {type(found).__name__}; name a function of tensors, a program or a graph")
    if not isinstance(found, TracedProgram) and any("x" in value for value in given.values()):
        shapes = {parameter: _shape(parameter, value) for parameter, value in given.items()}
        return _called(target, lambda: trace(found, dtype=dtype or "float16", **shapes))
    sizes = {size: _number(size, value) for size, value in given.items()}
    traced = found if isinstance(found, TracedProgram) else _annotated(target, found)
    return _called(target, lambda: traced.graph(dtype=dtype or "float16", **sizes))


def _annotated(target: str, found: object) -> TracedProgram:
    try:
        return program(found)  # type: ignore[arg-type]
    except UsageError as error:
        raise UsageError(f"{target}: {error}; or give a shape per parameter, --set X=16x64") from error


def _attribute(path: Path, name: str) -> object:
    if not path.exists():
        raise UnknownNameError(f"{path}: No such file or directory")
    module_name = f"_workbench_program_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} cannot be run as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"{path} fails when it is run: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(path.resolve().parent))
    if not hasattr(module, name):
        functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise UnknownNameError(f"{path} has no {name!r}; it has {', '.join(functions) or 'no function'}")
    found: object = getattr(module, name)
    return found


def _called(target: str, call: object) -> KernelGraph:
    try:
        graph: KernelGraph = call()  # type: ignore[operator]
    except WorkbenchError:
        raise
    except Exception as error:
        raise UsageError(f"{target} fails when it is traced: {type(error).__name__}: {error}") from error
    return graph


def _one_dtype(option: str | None, setting: str | None) -> str | None:
    if option is not None and setting is not None:
        raise UsageError(f"dtype is given twice: {option} and {setting}")
    return option or setting


def _number(name: str, value: str) -> int | float:
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    raise UsageError(f"--set {name}={value}: {value!r} is no number")


def _shape(name: str, value: str) -> tuple[int, ...]:
    try:
        return tuple(int(extent) for extent in value.split("x"))
    except ValueError as error:
        raise UsageError(f"--set {name}={value}: {value!r} is no shape such as 16x64") from error
