"""µGraphs in JSON files: ours with a schema version, and Mirage's as they are. What is saved loads to an equal graph.

A document is `{"schema": "mugraph-workbench", "version": 1, "graphs": [...]}` (or one `"graph"`). Exact numbers are
strings such as "1/1000000"; everything that is recorded is checked again when a graph is read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from workbench.errors import FormatError, UsageError
from workbench.ugraph.json_reader import read_graph
from workbench.ugraph.json_value import JsonValue, parse_json
from workbench.ugraph.json_writer import Json, write_graph
from workbench.ugraph.kernel_graph import KernelGraph, expect_kernel_graph
from workbench.ugraph.location import located
from workbench.ugraph.mirage_import import import_mirage, looks_like_mirage

SCHEMA, VERSION = "mugraph-workbench", 1


# --------------------------------------------------------------------------------------------------------------- files
def load(path: str | os.PathLike[str]) -> list[KernelGraph]:
    """Return the graphs of a JSON file, ours or Mirage's.

    Raises: FormatError, LegalityError or an operator's error, each one line naming the file and the place in it.
    """
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"load takes the path of a file, got {type(path).__name__}; use loads for a text")
    name = os.fspath(path)
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")  # some editors begin a file with a byte order mark
    except OSError as error:
        raise FormatError(f"{name}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise FormatError(f"{name}: is no UTF-8 text (byte {error.start}); expected a JSON file of µGraphs") from error
    with located(name):
        return loads(text)


def loads(text: str) -> list[KernelGraph]:
    """Return the graphs of a JSON text, ours or Mirage's. Raises: as `load`, naming the place in the text."""
    if not isinstance(text, str):
        raise UsageError(f"loads takes a JSON text, got {type(text).__name__}; use load for the path of a file")
    document = parse_json(text)
    if looks_like_mirage(document):
        return import_mirage(document)
    _check_version(document)
    if document.has("graph"):
        document.only("schema", "version", "graph")
        return [read_graph(document.field("graph"))]
    document.only("schema", "version", "graphs")
    return [read_graph(graph) for graph in document.field("graphs").items()]


def save(path: str | os.PathLike[str], graphs: KernelGraph | Iterable[KernelGraph]) -> None:
    """Write one or several graphs to a JSON file, in the order given."""
    Path(path).write_text(dumps(graphs) + "\n", encoding="utf-8")


def dumps(graphs: KernelGraph | Iterable[KernelGraph]) -> str:
    """Return the JSON text of one or several graphs, every node on a line of its own."""
    if not isinstance(graphs, Iterable):
        expect_kernel_graph(graphs, "written")
    listed = [graphs] if isinstance(graphs, KernelGraph) else list(graphs)
    for graph in listed:
        expect_kernel_graph(graph, "written")
    return _laid_out({"schema": SCHEMA, "version": VERSION, "graphs": [write_graph(graph) for graph in listed]}, "")


def to_json(graph: KernelGraph) -> dict[str, Json]:
    """Return a graph as a JSON object with schema and version."""
    return {"schema": SCHEMA, "version": VERSION, "graph": write_graph(graph)}


def from_json(document: Mapping[str, object]) -> KernelGraph:
    """Return the graph of a JSON object made by `to_json`. Raises: FormatError, LegalityError, errors of operators."""
    value = JsonValue(document, "")
    _check_version(value)
    value.only("schema", "version", "graph")
    return read_graph(value.field("graph"))


def _check_version(document: JsonValue) -> None:
    if not document.has("schema"):
        raise document.fail(f'an object with "schema": "{SCHEMA}", or a list of Mirage\'s operators')
    schema = document.field("schema")
    if schema.text() != SCHEMA:
        raise schema.fail(f"{SCHEMA!r}")
    version = document.field("version")
    if version.integer() != VERSION:
        raise FormatError(f"version: schema version {version.value} is not known; this workbench reads {VERSION}")


def _laid_out(value: Json, indent: str) -> str:
    """Return JSON text with lists of objects laid out one entry a line, all else compact."""
    if isinstance(value, dict):
        if not any(_is_long(entry) for entry in value.values()):
            return json.dumps(value, ensure_ascii=True)
        fields = [f"{json.dumps(name)}: {_laid_out(entry, indent + ' ')}" for name, entry in value.items()]
        return "{" + f",\n{indent} ".join(fields) + "}"
    if isinstance(value, list) and _is_long(value):
        inner = indent + " "
        return "[" + ",".join(f"\n{inner}{_laid_out(entry, inner)}" for entry in value) + "]"
    return json.dumps(value, ensure_ascii=True)


def _is_long(value: Json) -> bool:
    if isinstance(value, dict):
        return any(_is_long(entry) for entry in value.values())
    return isinstance(value, list) and any(
        (isinstance(entry, dict) and "kind" in entry) or _is_long(entry) for entry in value
    )
