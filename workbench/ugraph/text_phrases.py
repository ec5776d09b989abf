"""Phrases of the text form: statements, types, calls, maps and numbers. Invariant: every phrase keeps the token it began with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from workbench.core.dtypes import DType, as_dtype
from workbench.core.layouts import Strides
from workbench.core.shapes import Shape
from workbench.core.tensors import RaggedSplit
from workbench.ops.spec import AttributeValue
from workbench.ugraph.exact_number import exact_number
from workbench.ugraph.inference import GRID_AXES, LOOP
from workbench.ugraph.location import located
from workbench.ugraph.text_tokens import Token, expected, tokens

MAX_DIGITS = 18  # extents, counts and positions; constants may be longer
_CUT_AXES = {**{name: axis for axis, name in enumerate(GRID_AXES)}, "loop": LOOP}


@dataclass(frozen=True, slots=True)
class StatedType:
    """A type as the text states it; strides are empty where they are row-major or do not exist."""

    dtype: DType
    shape: Shape
    ragged: tuple[RaggedSplit | None, ...]
    strides: Strides
    token: Token


@dataclass(frozen=True, slots=True)
class StatedResult:
    """A result as the text states it: its name, and its type if given."""

    token: Token
    type: StatedType | None


@dataclass(frozen=True, slots=True)
class Call:
    """`word(operands, attributes)`."""

    word: Token
    operands: tuple[Token, ...]
    attributes: dict[str, AttributeValue]


class Phrases:
    """A cursor over the tokens of one text, and the phrases it can read there."""

    def __init__(self, text: str) -> None:
        self._tokens = list(tokens(text))
        self._position = 0

    def _statements(self) -> Iterator[Token]:
        """Yield the first word of every statement between braces; whoever takes it reads the rest of the statement."""
        self._mark("{")
        self._skip_lines()
        while not self._is_mark("}"):
            yield self._name("a statement or '}'")
            if not self._skip_lines() and not self._is_mark("}"):
                raise expected(self._peek(), "the end of the line or '}'")
        self._mark("}")

    def _call(self, word: Token, *, operands: int | None = None, attributes: Sequence[str] | None = None) -> Call:
        names: list[Token] = []
        found: dict[str, AttributeValue] = {}
        self._mark("(")
        while not self._is_mark(")"):
            token = self._name("an operand, an attribute or ')'")
            if self._is_mark("="):
                if token.text in found or (attributes is not None and token.text not in attributes):
                    raise expected(token, f"an attribute of {word.text}, each once")
                self._take()
                found[token.text] = self._attribute()
            elif found:
                raise expected(self._peek(), "'=' (operands stand before attributes)")
            else:
                names.append(token)
            if not self._is_mark(")"):
                self._mark(",", "',' or ')'")
        self._mark(")")
        if operands is not None and len(names) != operands:
            raise expected(word, f"{operands} operand{'s' * (operands != 1)} of {word.text}")
        return Call(word, tuple(names), found)

    def _attribute(self) -> AttributeValue:
        token = self._peek()
        if token.kind == "string":
            return self._take().text
        if self._is_mark("("):
            return self._integers("(", ")")
        return self._number()

    def _number(self) -> int | Fraction:
        token = self._next("number", "a number, a quoted word or '('")
        try:
            return exact_number(token.text)
        except ValueError as error:
            raise expected(token, f"an exact number ({error})") from None

    def _integer(self) -> int:
        token = self._next("number", "a whole number")
        if not token.text.lstrip("-").isdigit() or len(token.text) > MAX_DIGITS:
            raise expected(token, f"a whole number of at most {MAX_DIGITS} digits")
        return int(token.text)

    def _integers(self, opening: str, closing: str, *, count: int | None = None) -> tuple[int, ...]:
        found = []
        start = self._mark(opening)
        while not self._is_mark(closing):
            found.append(self._integer())
            if not self._is_mark(closing):
                self._mark(",", f"',' or '{closing}'")
        self._mark(closing)
        if count is not None and len(found) != count:
            raise expected(start, f"{count} number{'s' * (count != 1)} in {opening}{closing}")
        return tuple(found)

    def _axis_map(self, word: str) -> tuple[int | None, ...]:
        entries: list[int | None] = [None, None, None]
        if self._peek().kind != "name" or self._peek().text != word:
            return tuple(entries)
        self._take()
        self._mark("(")
        while not self._is_mark(")"):
            axis = self._next("name", "a grid axis x, y or z")
            if axis.text not in GRID_AXES or entries[GRID_AXES.index(axis.text)] is not None:
                raise expected(axis, "a grid axis x, y or z, each once")
            self._mark(":")
            entries[GRID_AXES.index(axis.text)] = self._integer()
            if not self._is_mark(")"):
                self._mark(",", "',' or ')'")
        self._mark(")")
        return tuple(entries)

    def _declaration(self, what: str) -> tuple[Token, StatedType]:
        name = self._name(what)
        self._mark(":")
        return name, self._type()

    def _type(self) -> StatedType:
        word = self._next("name", "a data type")
        with located(word.place):
            dtype = as_dtype(word.text)
        self._mark("[")
        shape: list[int] = []
        ragged: list[RaggedSplit | None] = []
        while not self._is_mark("]"):
            shape.append(self._integer())
            ragged.append(self._split())
            if not self._is_mark("]"):
                self._mark(",", "',' or ']'")
        self._mark("]")
        strides: Strides = ()
        if self._peek().kind == "name" and self._peek().text == "strides":
            self._take()
            strides = self._integers("(", ")", count=len(shape))
        return StatedType(dtype, tuple(shape), tuple(ragged), strides, word)

    def _split(self) -> RaggedSplit | None:
        if self._peek().kind != "name" or self._peek().text != "of":
            return None
        self._take()
        extent, parts = self._integer(), []
        while self._is_mark("/"):
            self._take()
            axis = self._next("name", "x, y, z or loop")
            if axis.text not in _CUT_AXES:
                raise expected(axis, "x, y, z or loop")
            self._mark(":")
            parts.append((_CUT_AXES[axis.text], self._integer()))
        if not parts:
            raise expected(self._peek(), "'/' and the cuts of the ragged extent")
        return RaggedSplit(extent, tuple(parts))

    def _results(self, first: Token) -> list[StatedResult]:
        stated, token = [], first
        while True:
            if token.kind not in ("name", "string"):
                raise expected(token, "the name of a result")
            kind = None
            if self._is_mark(":"):
                self._take()
                kind = self._type()
            stated.append(StatedResult(token, kind))
            if not self._is_mark(","):
                break
            self._take()
            token = self._name("the name of a result")
        self._mark("=", "':', ',' or '='")
        return stated

    def _no_cuts(self, stated: StatedType) -> None:
        if any(split is not None for split in stated.ragged):
            raise expected(stated.token, "a type without cuts (only tiles of a block graph are cut)")

    def _no_strides(self, stated: StatedType) -> None:
        if stated.strides:
            raise expected(stated.token, "a type without strides (only tensors in device memory have them)")

    # ------------------------------------------------------------------------------------------------------- tokens
    def _peek(self) -> Token:
        return self._tokens[self._position]

    def _take(self) -> Token:
        token = self._tokens[self._position]
        if token.kind != "end":
            self._position += 1
        return token

    def _next(self, kind: str, what: str) -> Token:
        if self._peek().kind != kind:
            raise expected(self._peek(), what)
        return self._take()

    def _name(self, what: str) -> Token:
        if self._peek().kind not in ("name", "string"):
            raise expected(self._peek(), what)
        return self._take()

    def _names(self) -> list[Token]:
        found = [self._name("the name of a tensor")]
        while self._is_mark(","):
            self._take()
            found.append(self._name("the name of a tensor"))
        return found

    def _is_mark(self, mark: str) -> bool:
        return self._peek().kind == "mark" and self._peek().text == mark

    def _is_keyword(self, token: Token, word: str) -> bool:
        return token.kind == "name" and token.text == word

    def _mark(self, mark: str, what: str | None = None) -> Token:
        if not self._is_mark(mark):
            raise expected(self._peek(), what or repr(mark))
        return self._take()

    def _skip_lines(self) -> bool:
        skipped = False
        while self._peek().kind == "newline":
            self._take()
            skipped = True
        return skipped
