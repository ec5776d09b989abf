"""Which program or file a command line names, at which sizes. Invariant: `--set` is read in one way by every command."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.commands.python_programs import names_python, read_python
from workbench.errors import FormatError, UnknownNameError, UsageError
from workbench.programs import registry
from workbench.programs.record import Instance
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.location import located
from workbench.ugraph.serialize import load
from workbench.ugraph.text import parse_kernel_graph


@dataclass(frozen=True, slots=True)
class Source:
    """Where graphs came from: a program settled at its sizes, or a file."""

    instance: Instance | None
    graphs: tuple[KernelGraph, ...]


def split_settings(tokens: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the tokens without `--set NAME=VALUE ...`, and the values by name.

    The values of `--set` are the tokens with `=` that follow it; the first other token ends them, so positionals may
    stand after them. Raises: UsageError for `--set` without a value, an empty name, a name set twice.
    """
    rest: list[str] = []
    settings: dict[str, str] = {}
    pending = list(tokens)
    while pending:
        token = pending.pop(0)
        if token == "--":
            return [*rest, token, *pending], settings
        if token != "--set" and not token.startswith("--set="):
            rest.append(token)
            continue
        given = [token.removeprefix("--set=")] if token != "--set" else []
        while pending and "=" in pending[0] and not pending[0].startswith("-"):
            given.append(pending.pop(0))
        if not given:
            raise UsageError("--set needs at least one NAME=VALUE, for example --set batch=16 hidden=4096")
        for pair in given:
            name, separator, value = pair.partition("=")
            if not separator or not name or not value:
                raise UsageError(f"--set {pair!r} is not NAME=VALUE, for example --set batch=16")
            if name in settings:
                raise UsageError(f"--set gives {name} twice: {settings[name]} and {value}")
            settings[name] = value
    return rest, settings


def add_program_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what settles a program beside its sizes."""
    parser.add_argument("--style", help="standard (default), or mirage for Mirage's own formula")
    parser.add_argument("--dtype", help="data type of the inputs: float16 (default), bfloat16, float32, float64")


def settle(name: str, arguments: argparse.Namespace, settings: Mapping[str, str]) -> Instance:
    """Return the program with sizes, style and data type settled.

    Raises: UsageError for a value that is no whole number; as `programs.get`.
    """
    options = {"style": arguments.style, "dtype": arguments.dtype}
    sizes: dict[str, int] = {}
    registry.program(name)
    for setting, value in settings.items():
        if setting in options:
            if options[setting] is not None:
                raise UsageError(f"{setting} is given twice: {options[setting]} and {value}")
            options[setting] = value
            continue
        try:
            sizes[setting] = int(value)
        except ValueError as error:
            raise UsageError(f"--set {setting}={value}: {value!r} is not a whole number") from error
    return registry.instance(name, options["style"] or "standard", options["dtype"] or "float16", sizes)


def read_source(target: str, arguments: argparse.Namespace, settings: Mapping[str, str]) -> Source:
    """Return the graphs that a program's name, a file's path or FILE.py:FUNCTION stands for; a program's name goes first.

    Raises: UnknownNameError when it is none of them; FormatError from a broken file; OSError; as `settle`, `read_python`.
    """
    if target in registry.names():
        instance = settle(target, arguments, settings)
        return Source(instance, (instance.build(),))
    if names_python(target):
        if arguments.style:
            raise UsageError(f"{target} has no styles; leave --style away")
        return Source(None, (read_python(target, settings, arguments.dtype),))
    path = Path(target)
    if path.suffix == ".py":
        raise UsageError(f"{target} is Python; name a program in it, {target}:FUNCTION")
    if not path.exists() and path.suffix == "" and path.name == target:
        try:
            registry.program(target)
        except UnknownNameError as error:
            raise UnknownNameError(f"{target!r} is neither a program nor a file: {error}") from error
    if settings or arguments.style or arguments.dtype:
        raise UsageError(
            f"{target} is a file, whose graphs have their own sizes; leave --set, --style and --dtype away"
        )
    return Source(None, read_graphs(path))


def read_graphs(path: Path) -> tuple[KernelGraph, ...]:
    """Return the graphs of a file: JSON, ours or Mirage's, or one graph's text form (.txt). Raises: FormatError, OSError."""
    if path.suffix == ".txt":
        with located(str(path)):
            return (parse_kernel_graph(path.read_text(encoding="utf-8")),)
    graphs = tuple(load(path))
    if not graphs:
        raise FormatError(f"{path} holds no graph")
    return graphs


def pick(graphs: Sequence[KernelGraph], index: int, *, what: str) -> KernelGraph:
    """Return one graph of several, counted from 0. Raises: UsageError when there is none of this number."""
    if not 0 <= index < len(graphs):
        raise UsageError(f"{what} has {len(graphs)} graphs, numbered 0 to {len(graphs) - 1}; there is no {index}")
    return graphs[index]
