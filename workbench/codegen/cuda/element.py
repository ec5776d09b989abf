"""One element at a time: C statements that compute the values of a stage at the place where a walk stands.

Statements are put as far out of the loop nest as their index allows, neighbours are read together where they lie together,
and what was computed once is not computed again. Invariant: an element outside the valid extents may be anything, but it
never reads outside its arrays.

Long because the places a value may lie in (registers, shared memory, device memory) are told apart in one evaluator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from workbench.codegen.cuda.addressing import TileAddress
from workbench.codegen.cuda.c_names import CNames, c_float
from workbench.codegen.cuda.emitted import C_TYPES
from workbench.codegen.cuda.exponentials import LOG2_E
from workbench.codegen.cuda.held_inputs import Held
from workbench.codegen.cuda.indices import ZERO, Index, Level, reshaped, shifted
from workbench.codegen.cuda.steps import SaveSink
from workbench.codegen.cuda.tile_storage import C_BYTES, EVERYWHERE, Registers, SharedTile
from workbench.codegen.cuda.tile_values import (
    Constant,
    Counted,
    Joined,
    Loaded,
    Mapped,
    TileValue,
    View,
    Viewed,
)
from workbench.codegen.cuda.value_paths import is_below_maximum
from workbench.codegen.cuda.walks import Nest, Walk, indented
from workbench.core.shapes import Shape
from workbench.core.tensors import RaggedSplit
from workbench.ops.registry import operator

LOWEST = "-3.40282347e38f"
"""The running maximum of what has no element, or -inf alone: from it x - m is -inf for x = -inf, not undefined."""

FAST = {
    "exp": "fast_exp({0})",
    "div": "({0} * fast_reciprocal({1}))",
    "sqrt": "fast_sqrt({0})",
    "rsqrt": "fast_rsqrt({0})",
    "sigmoid": "fast_sigmoid({0})",
    "silu": "fast_silu({0})",
}
"""C expressions of one or two hardware instructions, for kernels whose inputs and outputs have 16 bits."""

EXACT = {
    "maximum": "maximum({0}, {1})",
    "minimum": "minimum({0}, {1})",
    "relu": "maximum({0}, 0.0f)",
}
"""Intrinsics that mean the same as the operator's own expression, in one instruction."""


def scalar_text(op: str, operands: Sequence[str], attributes: dict[str, object], *, fast: bool) -> str:
    """Return the C expression of one element of an operator. Raises: MissingRuleError when it has none."""
    template = (FAST.get(op) if fast else None) or EXACT.get(op)
    spec = operator(op)
    numbers = {
        name: c_float(Fraction(value)) for name, value in attributes.items() if isinstance(value, int | Fraction)
    }
    if template is None:
        given = {name: value for name, value in attributes.items() if isinstance(value, int | Fraction | str | tuple)}
        template = spec.scalar_c if isinstance(spec.scalar_c, str) else None
        if template is None:
            return spec.scalar_expression(operands, given)
    return template.format(*operands, **numbers)


@dataclass(frozen=True, slots=True)
class Term:
    """C text of a value, a single name or literal, and the innermost loop it depends on."""

    text: str
    level: Level


class Places(Protocol):
    """What the evaluator needs to know of the kernel."""

    names: CNames
    fast_math: bool

    def registers_of(self, value: TileValue) -> Registers | None:
        """Return where a value lies in registers, if anybody reads it there."""
        ...

    def tile_of(self, value: TileValue) -> SharedTile | None:
        """Return where a value lies in shared memory."""
        ...

    def address_of(self, value: Loaded) -> tuple[str, TileAddress]:
        """Return the C pointer to a tile in device memory, and where it lies."""
        ...

    def output_of(self, sink: SaveSink) -> tuple[str, TileAddress]:
        """Return the C pointer to a tile of an output, and where it lies."""
        ...

    def extent(self, split: RaggedSplit) -> str:
        """Return the C name of the valid extent of a ragged axis."""
        ...

    def held_of(self, value: Loaded) -> Held | None:
        """Return where an input is held in registers from the start, if it is."""
        ...


class Elements:
    """Evaluates values at the current element of a walk, writing statements into its nest."""

    def __init__(self, places: Places, walk: Walk, nest: Nest) -> None:
        self.places, self.walk, self.nest = places, walk, nest
        self.known: dict[tuple[object, ...], Term] = {}
        self.flat: list[str] | None = None
        self.flat_level = Level.ELEMENT
        self.used: dict[str, int] = {}
        self.pairs: dict[TileValue, str] = {}  # values whose current two neighbours are in registers

    # -------------------------------------------------------------------------------------------------- statements
    def local(self, name: str) -> str:
        """Return a C name for a variable of this nest."""
        count = self.used.get(name, 0)
        self.used[name] = count + 1
        return name if count == 0 else self.places.names.claim(f"{name}_{count + 1}")

    def emit(self, line: str, level: Level) -> None:
        """Write a statement at a level of the nest, or where a branch is being written."""
        if self.flat is not None:
            self.flat.append(line)
        else:
            self.nest.at(level).append(line)

    def variable(self, name: str, text: str, level: Level, note: str = "") -> Term:
        """Write the definition of a float and return it."""
        local = self.local(name)
        self.emit(f"const float {local} = {text};{f'  // {note}' if note else ''}", level)
        return Term(local, max(level, self.flat_level) if self.flat is not None else level)

    # ------------------------------------------------------------------------------------------------------ values
    def at_walk(self, value: TileValue) -> Term:
        """Return a value at the walk's current element, the value's axes aligned with the space's last ones."""
        return self.value(value, broadcast(self.walk.index, value.shape))

    def set_known(self, value: TileValue, text: str, level: Level) -> None:
        """Let a value at the walk's current element be this text."""
        index = broadcast(self.walk.index, value.shape)
        self.known[(value, *(part.text for part in index))] = Term(text, level)

    def value(self, value: TileValue, index: Sequence[Index]) -> Term:
        """Return the value of an element."""
        key = (value, *(part.text for part in index))
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self._evaluate(value, index)
        return found

    def _evaluate(self, value: TileValue, index: Sequence[Index]) -> Term:
        stored = self._stored(value, index)
        if stored is not None:
            return stored
        match value:
            case Constant():
                return Term(c_float(value.value), Level.OUTSIDE)
            case Counted():
                return self.variable(value.name, f"(float)greater({self.places.extent(value.split)}, 1)", Level.OUTSIDE)
            case Mapped():
                return self._mapped(value, index)
            case Viewed():
                return self.value(value.operand, self._moved(value, index))
            case Joined():
                return self._joined(value, index)
            case Loaded():
                return self._direct(value, index)
            case _:
                raise AssertionError(f"{value.name} is read before it is placed")

    def _below_maximum(self, value: Mapped, index: Sequence[Index]) -> Term | None:
        """Return exp(x - m) as 2^(x log2 e - m log2 e), a multiply-add and an ex2 an element; None for anything else.

        m is scaled once a row; that of a row without a number stays finite. What rounding it does to a row's exponentials
        is one factor, which cancels where they are divided by their sum.
        """
        difference = value.operands[0]
        if not self.places.fast_math or not is_below_maximum(value) or not isinstance(difference, Mapped):
            return None
        left, right = difference.operands
        if right.shape[-1:] != (1,) or left.shape[-1:] == (1,):
            return None
        at = broadcast(index, right.shape)
        key = ("scaled", right, *(part.text for part in at))
        if key not in self.known:
            largest = self.value(right, at)
            text = f"maximum({largest.text} * {LOG2_E}, {LOWEST})"
            self.known[key] = self.variable(f"{right.name}_scaled", text, largest.level)
        subtracted, x = self.known[key], self.value(left, broadcast(index, left.shape))
        text = f"fast_exp2({x.text} * {LOG2_E} - {subtracted.text})"
        return self.variable(value.name, text, max(x.level, subtracted.level))

    def _mapped(self, value: Mapped, index: Sequence[Index]) -> Term:
        below = self._below_maximum(value, index) if value.op == "exp" else None
        if below is not None:
            return below
        terms = [self.value(operand, broadcast(index, operand.shape)) for operand in value.operands]
        level = max((term.level for term in terms), default=Level.OUTSIDE)
        attributes = dict[str, object](value.attributes)
        text = scalar_text(value.op, [term.text for term in terms], attributes, fast=self.places.fast_math)
        exact = [f"{name} = {number}" for name, number in value.attributes if isinstance(number, Fraction)]
        return self.variable(value.name, text, level, ", ".join(exact))

    @staticmethod
    def _moved(view: Viewed, index: Sequence[Index]) -> list[Index]:
        match view.view:
            case View.TRANSPOSE:
                return [*index[:-2], index[-1], index[-2]]
            case View.RESHAPE:
                return reshaped(index, view.shape, view.operand.shape)
            case View.BROADCAST:
                return broadcast(index, view.operand.shape)
            case View.PIECE:
                moved = list(index)
                moved[view.axis] = shifted(moved[view.axis], view.start)
                return moved

    def _joined(self, value: Joined, index: Sequence[Index]) -> Term:
        along, start, pieces = index[value.axis], 0, []
        for operand in value.operands:
            pieces.append((operand, start, start + operand.shape[value.axis]))
            start = pieces[-1][2]
        number = along.number
        if number is not None:
            operand, first = next((piece, low) for piece, low, high in pieces if low <= number < high)
            return self.value(operand, self._piece_index(index, value.axis, first, operand.shape))
        level = max(part.level for part in index)
        name = self.local(value.name)
        lines = [f"float {name};"]
        for place, (operand, low, high) in enumerate(pieces):
            body, result = self._branch(operand, self._piece_index(index, value.axis, low, operand.shape), level)
            word = "else {" if place == len(pieces) - 1 else f"if ({along.text} < {high}) {{"
            word = word if place == 0 or place == len(pieces) - 1 else f"else {word}"
            lines += [word, *indented([*body, f"{name} = {result};"]), "}"]
        if len(pieces) == 1:
            return self.value(value.operands[0], index)
        for line in lines:
            self.emit(line, level)
        return Term(name, max(level, self.flat_level) if self.flat is not None else level)

    @staticmethod
    def _piece_index(index: Sequence[Index], axis: int, start: int, shape: Shape) -> list[Index]:
        moved = [Index(part.text, part.level, part.bound) for part in index]
        piece = shifted(moved[axis], -start)
        moved[axis] = Index(piece.text, piece.level, shape[axis])
        return moved

    def _branch(self, value: TileValue, index: Sequence[Index], level: Level) -> tuple[list[str], str]:
        """Return the statements of a branch, and what it yields; nothing computed in it is known outside."""
        before = self.flat, self.flat_level, self.known
        self.flat, self.flat_level, self.known = [], level, dict(self.known)
        term = self.value(value, index)
        lines = self.flat
        self.flat, self.flat_level, self.known = before
        return lines, term.text

    # ------------------------------------------------------------------------------------------------ stored values
    def _stored(self, value: TileValue, index: Sequence[Index]) -> Term | None:
        if value in self.pairs and same_index(index, broadcast(self.walk.index, value.shape)):
            return Term(f"{self.pairs[value]}[e]", Level.ELEMENT)
        registers = self.places.registers_of(value)
        if registers is not None:
            slot = self._slot(registers, value, index)
            if slot is not None:
                is_by_row = registers.by_row or self.walk.rows_only
                level = Level.OUTSIDE if registers.key == EVERYWHERE else Level.ROW if is_by_row else Level.ELEMENT
                return Term(
                    f"{registers.variable}{slot}", max(level, self.flat_level) if self.flat is not None else level
                )
        tile = self.places.tile_of(value)
        return None if tile is None else self._shared(value, tile, index)

    def _slot(self, registers: Registers, value: TileValue, index: Sequence[Index]) -> str | None:
        walk = self.walk
        if registers.key == EVERYWHERE:
            return "[0]"
        if registers.by_row and registers.key == walk.row_key:
            wanted, slot = walk.row_index, walk.row_slot
        elif not registers.by_row and registers.key == walk.element_key:
            wanted, slot = walk.index, walk.element_slot
        else:
            return None
        return slot if same_index(index, broadcast(wanted, value.shape)) else None

    def _shared(self, value: TileValue, tile: SharedTile, index: Sequence[Index]) -> Term:
        row, column = tile.row_and_column(tile.readable(index))
        level, width = max(row.level, column.level), self._shared_width(tile, row, column)
        factors = self._factors(tile, index)
        if width > 1:
            return self._shared_group(value, tile, row, column, width, factors)
        texts = []
        for number in range(tile.read_slices):
            place = shifted(row, number * tile.slice_rows)
            at = f"{tile.variable}.at({bare(place.text)}, {bare(column.text)})"
            if tile.cluster > 1:
                texts.append(f"cluster_{tile.folding}<{tile.cluster}>({at}).value[0]")
            else:
                texts.append(f"*{at}" if tile.c_type == "float" else f"to_f32(*{at})")
        return self.variable(value.name, combined(scaled(texts, factors), tile.folding), level)

    def _factors(self, tile: SharedTile, index: Sequence[Index]) -> list[str]:
        """Return what each slice of a tile's row is multiplied by to be below the row's largest maximum; [] for no tile."""
        own = tile.factors
        if own is None:
            return []
        row, _ = own.row_and_column(own.readable([*index[:-1], ZERO]))
        places = [bare(shifted(row, number * own.slice_rows).text) for number in range(own.slices)]
        keys = [(own, place) for place in places]
        if keys[0] not in self.known:
            maxima = [self.variable("warp_maximum", f"*{own.variable}.at({place}, 0)", row.level) for place in places]
            best = self.variable("row_maximum", combined([one.text for one in maxima], "max"), row.level)
            for key, one in zip(keys, maxima, strict=True):
                text = scalar_text("exp", [f"{one.text} - {best.text}"], {}, fast=self.places.fast_math)
                self.known[key] = self.variable("warp_factor", text, row.level)
        return [self.known[key].text for key in keys]

    def _shared_width(self, tile: SharedTile, row: Index, column: Index) -> int:
        """Return how many neighbours are read together: the walk's width where they lie side by side, else 1."""
        width, size = self.walk.width, C_BYTES[tile.c_type]
        if self.flat is not None or width == 1 or column.group != "col" or row.level > Level.ROW:
            return 1
        if tile.columns % width or tile.stride % width or width * size not in (4, 8, 16, 32):
            return 1
        if tile.swizzle and width * size > 16:
            return 1
        return 1 if tile.cluster > 1 and width > 4 else width

    def _shared_group(
        self, value: TileValue, tile: SharedTile, row: Index, column: Index, width: int, factors: Sequence[str]
    ) -> Term:
        assert column.group is not None
        names = []
        for number in range(tile.read_slices):
            place = shifted(row, number * tile.slice_rows)
            at = f"{tile.variable}.at({bare(place.text)}, {column.group})"
            names.append(self.local(f"{value.name}_group"))
            read = (
                f"cluster_{tile.folding}<{tile.cluster}, {width}>({at})"
                if tile.cluster > 1
                else (f"shared_to_register<{width}>({at})")
            )
            self.emit(f"const Vec<{tile.c_type}, {width}> {names[-1]} = {read};", Level.GROUP)
        parts = [f"{name}.value[e]" for name in names]
        texts = parts if tile.c_type == "float" else [f"to_f32({part})" for part in parts]
        return self.variable(value.name, combined(scaled(texts, factors), tile.folding), Level.ELEMENT)

    # ------------------------------------------------------------------------------------------------ device memory
    def _direct(self, value: Loaded, index: Sequence[Index]) -> Term:
        pointer, address = self.places.address_of(value)
        strides, c_type = value.tensor.strides, C_TYPES[value.dtype]
        group_axis = self._group_axis(value, address, index)
        guards = [
            guard
            for axis, part in enumerate(index)
            if axis != group_axis and (guard := self._guard(value, axis, part.text, part.bound))
        ]
        if group_axis is None:
            place = offset_text([part.text for part in index], strides, value.shape)
            read = f"to_f32({pointer}[{place}])" if c_type != "float" else f"{pointer}[{place}]"
            text = f"{' && '.join(guards)} ? {read} : 0.0f" if guards else read
            level = max((part.level for part in index), default=Level.OUTSIDE)
            return self.variable(value.name, text, level)
        held = self.places.held_of(value)
        if held is not None and held.walk.element_key == self.walk.element_key:
            chunk = f"{held.variable}{held.slot}"
        else:
            chunk = self.local(f"{value.name}_group")
            read = self._group_read(value, pointer, index, group_axis, guards)
            self.emit(f"const Vec<{c_type}, {self.walk.width}> {chunk} = {read};", Level.GROUP)
        element = f"{chunk}.value[e]"
        return self.variable(value.name, element if c_type == "float" else f"to_f32({element})", Level.ELEMENT)

    def hold(self, value: Loaded, held: Held) -> None:
        """Write the statement that brings the current group of an input into the registers that hold it."""
        pointer, address = self.places.address_of(value)
        index = broadcast(self.walk.index, value.shape)
        axis = self._group_axis(value, address, index)
        assert axis is not None
        guards = [
            guard
            for other, part in enumerate(index)
            if other != axis and (guard := self._guard(value, other, part.text, part.bound))
        ]
        read = self._group_read(value, pointer, index, axis, guards)
        self.emit(f"{held.variable}{held.slot} = {read};", Level.GROUP)

    def _group_read(self, value: Loaded, pointer: str, index: Sequence[Index], axis: int, guards: list[str]) -> str:
        """Return C text of the current group, with what bounds it written before."""
        width = self.walk.width
        texts = [part.group if other == axis and part.group else part.text for other, part in enumerate(index)]
        place = offset_text(texts, value.tensor.strides, value.shape)
        from_text = f"{pointer} + {place}" if place != "0" else pointer
        read = f"global_to_register<{width}, Cache::read_only>({from_text})"
        part = index[axis]
        limit = self._limit(value, axis, part.bound)
        if limit is None and not guards:
            return read
        count = f"{limit} - {part.group}" if limit is not None else str(width)
        left = self.local(f"{value.name}_left")
        bounded = f"{' && '.join(guards)} ? {count} : 0" if guards else count
        self.emit(f"const int {left} = {bounded};", Level.GROUP)
        return f"{left} >= {width} ? {read} : global_to_register_edge<{width}>({from_text}, {left})"

    def can_hold(self, value: Loaded) -> bool:
        """Return True when the walk's neighbours of an input are read with one access."""
        _, address = self.places.address_of(value)
        return self._group_axis(value, address, broadcast(self.walk.index, value.shape)) is not None

    def _group_axis(self, value: Loaded, address: TileAddress, index: Sequence[Index]) -> int | None:
        """Return the axis along which the walk's neighbours are read with one access, None if there is none."""
        width, size = self.walk.width, value.dtype.nbytes
        if self.flat is not None or width == 1 or width * size not in (4, 8, 16, 32):
            return None
        axes = [axis for axis, part in enumerate(index) if part.group is not None]
        others = [part for axis, part in enumerate(index) if axis not in axes]
        if len(axes) != 1 or index[axes[0]].group != "col" or any(part.level > Level.ROW for part in others):
            return None
        axis = axes[0]
        is_aligned = address.alignment(axis) % min(width, 16 // size) == 0
        return axis if address.strides[axis] == 1 and is_aligned else None

    def _limit(self, value: Loaded, axis: int, bound: int) -> str | None:
        split = value.ragged[axis]
        if split is not None:
            return self.places.extent(split)
        return str(value.shape[axis]) if bound > value.shape[axis] else None

    def _guard(self, value: Loaded, axis: int, text: str, bound: int) -> str:
        limit = self._limit(value, axis, bound)
        return "" if limit is None else f"{text} < {limit}"


def broadcast(index: Sequence[Index], shape: Shape) -> list[Index]:
    """Return the index of an operand of this shape: trailing axes meet, axes of extent 1 stay at 0."""
    last = index[len(index) - len(shape) :]
    return [ZERO if extent == 1 else part for part, extent in zip(last, shape, strict=True)]


def same_index(one: Sequence[Index], other: Sequence[Index]) -> bool:
    """Return True when two indices are the same text."""
    return [part.text for part in one] == [part.text for part in other]


def scaled(texts: Sequence[str], factors: Sequence[str]) -> list[str]:
    """Return C texts of slices, each times its factor where there are any."""
    return [f"{text} * {factor}" for text, factor in zip(texts, factors, strict=True)] if factors else list(texts)


def combined(texts: Sequence[str], folding: str) -> str:
    """Return C text of the sum or maximum of several."""
    if folding == "sum":
        return " + ".join(texts)
    text = texts[0]
    for other in texts[1:]:
        text = f"maximum({text}, {other})"
    return text


def bare(text: str) -> str:
    """Return an index without the parentheses around all of it."""
    inner = text[1:-1]
    return inner if text.startswith("(") and text.endswith(")") and "(" not in inner and ")" not in inner else text


def offset_text(index: Sequence[str], strides: Sequence[int], shape: Shape) -> str:
    """Return C text of the offset of an element from the start of its tile, in 64 bits where 32 do not reach."""
    reach = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    terms = []
    for text, stride in zip(index, strides, strict=True):
        if text == "0":
            continue
        wide = f"(i64){text}" if reach >= 2**31 else text
        terms.append(wide if stride == 1 else f"{wide} * {stride}")
    return " + ".join(terms) or "0"
