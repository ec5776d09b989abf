"""A JSON value together with its place in the document. Invariant: a wrong kind of value is a FormatError naming the place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from workbench.errors import FormatError
from workbench.ugraph.exact_number import exact_number

MAX_INTEGER = 2**53  # what every JSON reader keeps exactly


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A part of a JSON document. Attributes: value; place, such as `graphs[2].nodes[0].operands`."""

    value: object
    place: str

    def fail(self, what: str) -> FormatError:
        """Return the error that something else was expected here."""
        found = json.dumps(self.value, default=str)
        return FormatError(
            f"{self.place or 'the document'}: expected {what}, found {found[:57] + '...' * (len(found) > 57)}"
        )

    # --------------------------------------------------------------------------------------------------- objects, lists
    def has(self, name: str) -> bool:
        """Return whether this is an object with this field."""
        return isinstance(self.value, dict) and name in self.value

    def field(self, name: str) -> JsonValue:
        """Return a field of an object. Raises: FormatError when it is missing or this is no object."""
        if not isinstance(self.value, dict):
            raise self.fail(f"an object with a field {name!r}")
        if name not in self.value:
            raise FormatError(f"{self.place or 'the document'}: field {name!r} is missing")
        return JsonValue(self.value[name], f"{self.place}.{name}" if self.place else name)

    def optional(self, name: str) -> JsonValue | None:
        """Return a field of an object, None when it is missing or null."""
        return self.field(name) if self.has(name) and self.field(name).value is not None else None

    def only(self, *names: str) -> None:
        """Raises: FormatError when an object has a field that is none of these."""
        if not isinstance(self.value, dict):
            raise self.fail("an object")
        for name in self.value:
            if name not in names:
                raise FormatError(f"{self.place or 'the document'}: unknown field {name!r}; known: {', '.join(names)}")

    def items(self) -> list[JsonValue]:
        """Return the entries of a list."""
        if not isinstance(self.value, list):
            raise self.fail("a list")
        return [JsonValue(entry, f"{self.place}[{number}]") for number, entry in enumerate(self.value)]

    def entries(self) -> Iterator[tuple[str, JsonValue]]:
        """Yield name and value of every field of an object."""
        if not isinstance(self.value, dict):
            raise self.fail("an object")
        return ((name, self.field(name)) for name in self.value)

    # ------------------------------------------------------------------------------------------------------- leaves
    def text(self) -> str:
        """Return a string."""
        if not isinstance(self.value, str):
            raise self.fail("a string")
        return self.value

    def integer(self) -> int:
        """Return an integer (no truth value, no float)."""
        if not isinstance(self.value, int) or isinstance(self.value, bool) or abs(self.value) > MAX_INTEGER:
            raise self.fail("an integer")
        return self.value

    def number(self) -> Fraction:
        """Return an exact number: an integer, or a string such as "1/3"."""
        if not isinstance(self.value, str):
            return Fraction(self.integer())
        try:
            return Fraction(exact_number(self.value))
        except ValueError as error:
            raise self.fail(f'an exact number such as "1/3" ({error})') from None

    def integers(self) -> tuple[int, ...]:
        """Return a list of integers."""
        return tuple(entry.integer() for entry in self.items())

    def texts(self) -> tuple[str, ...]:
        """Return a list of strings."""
        return tuple(entry.text() for entry in self.items())


def parse_json(text: str) -> JsonValue:
    """Return the JSON document in a text. Raises: FormatError with line and column where it breaks."""
    try:
        return JsonValue(json.loads(text, parse_constant=_refuse_constant), "")
    except json.JSONDecodeError as error:
        rest = text[error.pos :].strip()
        why = "the text ends too early (truncated?)" if not rest else error.msg
        raise FormatError(f"line {error.lineno}, column {error.colno}: broken JSON: {why}") from error
    except RecursionError as error:
        raise FormatError("broken JSON: nested too deeply") from error
    except ValueError as error:  # an integer of thousands of digits, NaN
        raise FormatError(f"broken JSON: {error}") from error


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")
