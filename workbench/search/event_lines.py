"""Events as lines of JSON, and back. Invariant: an event read from its line equals the event, and says the same words.

Texts that an event would write when asked are written out. A graph stands once, in a line of its own before the first
event that shows it; events name it by its digest. What is as it is by default is not written:

    {"graph":"5c0f...","value":{"kind":"kernel_graph",...}}
    {"event":"Completed","plan":"loops h","number":0,"graph":{"$graph":"5c0f..."},"operators":9,"kernels":1}

Tuples become lists and lists are read as tuples; numbers that must stay exact and verdicts are marked by `$`. Fields with
defaults may be missing, so events may get new ones; an event or field that this version does not know is an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, replace
from fractions import Fraction
from hashlib import blake2b
from typing import cast, get_args

from workbench.errors import FormatError
from workbench.search.events import Event, Said, Text
from workbench.search.verdicts import RecordedVerdict, Screening, VerdictLike
from workbench.ugraph.json_writer import write_graph
from workbench.ugraph.kernel_graph import KernelGraph

SCHEMA_VERSION = 1
"""Version of the lines; it counts up when a reader of today could misread them."""

_Json = dict[str, object]
GraphOf = Callable[[str], KernelGraph]


def dump(value: object) -> str:
    """Return compact JSON text."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


class LineWriter:
    """Turns events into lines; remembers which graphs it has written."""

    def __init__(self, written: set[str] | None = None) -> None:
        """Start. written: digests of graphs that stand in the file already."""
        self._written: set[str] = set() if written is None else set(written)
        self._last: tuple[KernelGraph, str] | None = None

    def lines(self, event: Event) -> list[str]:
        """Return the lines of an event: those of graphs that are new, then its own.

        Raises: TypeError for a field of a kind that has no JSON form.
        """
        graphs: list[str] = []
        plain: _Json = {"event": type(event).__name__}
        defaults = _defaults(type(event))
        for name, is_text in _fields(type(event)).items():
            value = getattr(event, name)
            if name in defaults and value == defaults[name]:
                continue
            plain[name] = value() if is_text and callable(value) else self._plain(value, graphs)
        return [*graphs, dump(plain)]

    def _plain(self, value: object, graphs: list[str]) -> object:
        match value:
            case None | bool() | int() | float() | str():
                return value
            case tuple() | list() | frozenset():
                items = sorted(value) if isinstance(value, frozenset) else value
                return [self._plain(item, graphs) for item in items]
            case KernelGraph():
                return {"$graph": self._graph(value, graphs)}
            case Fraction():
                return {"$fraction": str(value)}
            case Screening():
                named = {name: getattr(value, name) for name in ("kind", "reason", "tests", "shapes")}
                return {"$screening": self._plain(named, graphs)}
            case Mapping():
                return {str(name): self._plain(item, graphs) for name, item in value.items()}
            case _ if isinstance(getattr(value, "kind", None), str) and isinstance(getattr(value, "reason", None), str):
                return {"$verdict": self._plain(_verdict_values(cast(VerdictLike, value)), graphs)}
        raise TypeError(f"an event's field of type {type(value).__name__} has no form in a record")

    def _graph(self, graph: KernelGraph, graphs: list[str]) -> str:
        if self._last is not None and self._last[0] is graph:
            return self._last[1]
        text = dump(write_graph(graph))
        digest = blake2b(text.encode(), digest_size=8).hexdigest()
        if digest not in self._written:
            self._written.add(digest)
            graphs.append(f'{{"graph":"{digest}","value":{text}}}')
        self._last = (graph, digest)
        return digest


def read_event(line: bytes | str, graph_of: GraphOf) -> Event:
    """Return the event of a line. graph_of: graphs by digest. Raises: FormatError for anything that is no such line."""
    try:
        plain = json.loads(line)
        name = plain.pop("event")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise FormatError(f"expected an event as one JSON object, found {_short(line)}") from error
    cls = EVENTS.get(name)
    if cls is None:
        raise FormatError(f"event {name!r} is not known; this workbench reads version {SCHEMA_VERSION} of events")
    known = _fields(cls)
    values: _Json = {}
    for field_name, value in plain.items():
        if field_name not in known:
            raise FormatError(f"event {name} has a field {field_name!r} that this version does not know")
        is_text = known[field_name] and isinstance(value, str)
        values[field_name] = Said(value) if is_text else _object(value, graph_of)
    missing = [
        f.name for f in fields(cls) if f.name not in values and f.default is MISSING and f.default_factory is MISSING
    ]
    if missing:
        raise FormatError(f"event {name} lacks {', '.join(missing)}: {_short(line)}")
    return cast(Event, cls(**values))


def _object(value: object, graph_of: GraphOf) -> object:
    if isinstance(value, list):
        return tuple(_object(item, graph_of) for item in value)
    if not isinstance(value, dict):
        return value
    match value:
        case {"$graph": str(digest)}:
            return graph_of(digest)
        case {"$fraction": str(text)}:
            return Fraction(text)
        case {"$screening": dict(named)}:
            return Screening(**{name: _object(item, graph_of) for name, item in named.items()})  # type: ignore[arg-type]
        case {"$verdict": {"kind": str(kind), "reason": str(reason), "values": dict(values)}}:
            return RecordedVerdict(kind, reason, values)
    return {name: _object(item, graph_of) for name, item in value.items()}


def _verdict_values(verdict: VerdictLike) -> _Json:
    to_json = getattr(verdict, "to_json", None)
    return {"kind": verdict.kind, "reason": verdict.reason, "values": to_json() if to_json is not None else {}}


EVENTS: dict[str, type] = {cls.__name__: cls for cls in get_args(Event)}
"""Every kind of event by name."""

_FIELDS: dict[type, dict[str, bool]] = {}
_DEFAULTS: dict[type, _Json] = {}


def _defaults(cls: type) -> _Json:
    """Return the fields of a kind of event that need not be written, and what they then are."""
    if cls not in _DEFAULTS:
        _DEFAULTS[cls] = {field.name: field.default for field in fields(cls) if field.default is not MISSING}
    return _DEFAULTS[cls]


def _fields(cls: type) -> dict[str, bool]:
    """Return the fields of a kind of event, and whether each is a text that is written when asked for."""
    if cls not in _FIELDS:
        _FIELDS[cls] = {field.name: "Text" in str(field.type) for field in fields(cls)}
    return _FIELDS[cls]


def with_texts(event: Event, change: Callable[[str, Text], Text]) -> Event:
    """Return an event with other texts in place of those that are not written out. change: by the field's name."""
    changes = {
        name: change(name, text)
        for name, is_text in _fields(type(event)).items()
        if is_text and callable(text := getattr(event, name)) and not isinstance(text, Said)
    }
    return replace(event, **changes) if changes else event  # type: ignore[arg-type]


def settled(event: Event) -> Event:
    """Return an event whose texts are written out, so that it can travel to another process."""
    return with_texts(event, lambda _, text: Said(text()))


def _short(line: bytes | str) -> str:
    text = line.decode(errors="replace") if isinstance(line, bytes) else line
    return text[:60] + "..." * (len(text) > 60)
