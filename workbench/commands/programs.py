"""`workbench programs`: which programs are studied, their sizes, inputs and outputs."""

from __future__ import annotations

import argparse

from workbench.commands.answer import Answer, Call, Json
from workbench.core.tensors import DeviceTensor
from workbench.errors import UsageError
from workbench.programs import registry
from workbench.programs.record import Style


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("program", nargs="?", metavar="PROGRAM", help="describe this one in full")


def run(call: Call) -> Answer:
    """Return all programs, or one described. Raises: UnknownNameError, UsageError for sizes, which do not matter here."""
    if call.settings:
        raise UsageError("programs lists defaults and takes no --set; use workbench show PROGRAM --set ...")
    one: str | None = call.arguments.program
    chosen = [one] if one is not None else registry.names()
    values: list[Json] = [_values(name) for name in chosen]
    if one is not None:
        return Answer(registry.describe(one), {"programs": values})
    width = max(len(name) for name in chosen)
    lines = []
    for name in chosen:
        record = registry.program(name)
        sizes = " ".join(f"{size}={default}" for size, default in record.defaults.items())
        lines += [f"{name:{width}}  {record.equations[Style.STANDARD]}", f"{'':{width}}  {sizes}"]
    return Answer("\n".join(lines), {"programs": values})


def _values(name: str) -> dict[str, Json]:
    record = registry.program(name)
    graph = registry.get(name)
    sizes: dict[str, Json] = dict(record.defaults)
    return {
        "name": name,
        "summary": record.summary,
        "formula": record.equations[Style.STANDARD],
        "formula_mirage": record.equations[Style.MIRAGE],
        "parameters": sizes,
        "help": {parameter.name: parameter.help for parameter in record.parameters},
        "inputs": [tensor_values(tensor) for tensor in graph.inputs],
        "outputs": [tensor_values(tensor) for tensor in graph.outputs],
        "source": record.source,
    }


def tensor_values(tensor: DeviceTensor) -> dict[str, Json]:
    """Return a tensor as a JSON object."""
    return {
        "name": tensor.name,
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype),
        "strides": list(tensor.strides),
    }
