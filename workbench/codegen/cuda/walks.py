"""How the threads of a block walk over the elements of a tile: rows dealt to groups of threads, or tensor-core fragments.

A walk is a loop nest with four places for statements (outside, per row, per group of neighbouring elements, per element).
Invariant: every element of the space is visited by exactly one thread that may store it; two walks with equal keys give
each element (or row) to the same thread at the same slot, so that registers carry over without shared memory.

Long because walks that share keys are read together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, field
from math import prod

from workbench.codegen.cuda.indices import ZERO, Index, Level, quotient, remainder
from workbench.codegen.cuda.launch_shape import WARP
from workbench.core.shapes import Shape

MOST_UNROLLED = 64
"""Steps of a row that are unrolled so that arrays of registers can be indexed; no array has that many elements."""


@dataclass
class Nest:
    """Statements of a loop nest by place. `row_always` stands after the inner loop, where every thread comes by."""

    outside: list[str] = field(default_factory=list)
    row_first: list[str] = field(default_factory=list)
    row: list[str] = field(default_factory=list)
    group: list[str] = field(default_factory=list)
    element: list[str] = field(default_factory=list)
    group_last: list[str] = field(default_factory=list)
    row_last: list[str] = field(default_factory=list)
    row_always: list[str] = field(default_factory=list)

    def at(self, level: Level) -> list[str]:
        """Return the statements of a place."""
        return {Level.OUTSIDE: self.outside, Level.ROW: self.row, Level.GROUP: self.group, Level.ELEMENT: self.element}[
            level
        ]


def indented(lines: list[str], by: int = 1) -> list[str]:
    """Return lines moved to the right; preprocessor lines stay at the margin, empty ones empty."""
    return [line if not line or line.startswith("#") else "  " * by + line for line in lines]


def loop(head: str, body: list[str], *, unroll: bool | int) -> list[str]:
    """Return a for loop; unroll: True for all of it, a number for that many times, False for the compiler's choice."""
    pragma = ["#pragma unroll"] if unroll is True else [f"#pragma unroll {unroll}"] if unroll else []
    return [*pragma, f"for ({head}) {{", *indented(body), "}"]


class Walk(ABC):
    """A loop nest over a space.

    Attributes:
        space: extents walked over. inner: the axis (from the front) whose elements a group of threads shares; None for a scalar.
        width: neighbouring elements along `inner` that one thread takes together.
        index: the index of the current element, one per axis.
        row_key, element_key: see the module. row_dims, element_dims: dimensions of arrays with one slot per row (element)
            that a thread owns; row_slot, element_slot: subscripts of the current one.
        lanes: neighbouring lanes that share a row; slices: groups of `lanes` that share it beyond a warp, or over warps;
            slice_text: which of these this thread is in. leader: C condition of the one lane that stores for its lanes;
            row_guard: more conditions where `row_always` stands. rows_only: the space has one element a row.
    """

    space: Shape
    inner: int | None
    width: int
    index: tuple[Index, ...]
    row_key: Hashable
    element_key: Hashable
    row_dims: str
    element_dims: str
    row_slot: str
    element_slot: str
    row_slots: int
    element_slots: int
    lanes: int
    slices: int
    slice_text: str
    leader: str
    row_guard: list[str]
    rows_only: bool

    @abstractmethod
    def text(self, nest: Nest) -> list[str]:
        """Return the loop nest around the statements."""

    @property
    def row_index(self) -> tuple[Index, ...]:
        """The index of the first element of the current row."""
        return tuple(ZERO if axis == self.inner else part for axis, part in enumerate(self.index))


def group_sizes(threads: int) -> list[int]:
    """Return how many threads may share a row: powers of two within a warp, then whole warps that divide the block."""
    warps = threads // WARP
    return [1, 2, 4, 8, 16, 32, *(WARP * count for count in range(2, warps + 1) if warps % count == 0)]


def choose_width(space: Shape, inner: int | None, workers: int, most: int) -> int:
    """Return how many neighbours a thread takes together: as many as keep all threads busy, at most `most`."""
    if inner is None:
        return 1
    extent, total = space[inner], prod(space)
    width = most
    while width > 1 and (extent % width or (total // width < workers and width > 2)):
        width //= 2
    return width


class RowsWalk(Walk):
    """Rows dealt to groups of threads; the elements of a row run along `inner`, `width` neighbours at a time.

    Attributes: has_slots: loops have fixed counts and are unrolled, so that arrays of registers can be indexed; group_size:
    threads that share a row; rows_only: all of them hold the row's one element; for_all: every group takes the only row, so
    that no thread waits for another's.
    """

    def __init__(
        self,
        space: Shape,
        inner: int | None,
        *,
        threads: int,
        width: int,
        cluster: int = 1,
        has_slots: bool = False,
        group_size: int | None = None,
        rows_only: bool = False,
        for_all: bool = False,
    ) -> None:
        self.space, self.inner, self.width, self.has_slots = space, inner, width, has_slots
        self.for_all = for_all
        self.rows_only = rows_only
        self.workers = threads * cluster
        self.worker = "thread" if cluster == 1 else "worker"
        self.columns = 1 if inner is None else space[inner]
        self.outer = tuple(axis for axis in range(len(space)) if axis != inner)
        self.rows = prod(space[axis] for axis in self.outer)
        sizes = group_sizes(threads)
        chunks = -(-self.columns // width)
        self.group_size = group_size or next((size for size in sizes if size >= chunks), sizes[-1])
        self.row_step = self.workers // self.group_size
        self.row_count = -(-self.rows // self.row_step)
        self.chunk_count = -(-self.columns // (self.group_size * width))
        self.row_key = ("rows", tuple(space[axis] for axis in self.outer), self.inner, self.group_size, self.workers)
        self.element_key = (*self.row_key, self.columns, width)
        self.row_dims, self.row_slots = f"[{self.row_count}]", self.row_count
        self.element_slots = self.row_count * self.chunk_count * width
        self.element_dims = f"[{self.row_count}][{self.chunk_count * width}]"
        row = "0" if self.row_count == 1 else "rr"
        chunk = "0" if self.chunk_count == 1 else "cc" if width == 1 else f"cc * {width}"
        within = chunk if width == 1 else "e" if chunk == "0" else f"{chunk} + e"
        self.row_slot, self.element_slot = f"[{row}]", f"[{row}][{within}]"
        self.lanes = min(self.group_size, WARP)
        self.slices = max(1, self.group_size // WARP)
        self.slice_text = f"thread % {self.group_size} / {WARP}" if self.slices > 1 else "0"
        self.leader = f"thread % {self.lanes} == 0" if self.lanes > 1 else ""
        self.row_guard: list[str] = []
        if self.rows == 1 and self.group_size < self.workers and not for_all:
            self.row_guard = [f"{self.worker} < {self.group_size}"]
        elif self.rows > 1 and self.rows % self.row_step:
            self.row_guard = [f"row < {self.rows}"]
        if rows_only:
            self.element_dims, self.element_slots, self.element_slot = self.row_dims, self.row_slots, self.row_slot
        self.index = self._index()

    def _index(self) -> tuple[Index, ...]:
        row = ZERO if self.rows == 1 else Index("row", Level.ROW, self.rows)
        found: list[Index] = [ZERO] * len(self.space)
        step = self.rows
        for axis in self.outer:
            step //= self.space[axis]
            found[axis] = remainder(quotient(row, step), self.space[axis])
        if self.inner is not None and self.columns > 1:
            if self.width > 1:
                found[self.inner] = Index("(col + e)", Level.ELEMENT, self.columns, "col")
            else:
                found[self.inner] = Index("col", Level.GROUP, self.columns)
        return tuple(found)

    def text(self, nest: Nest) -> list[str]:
        """Return the loop nest."""
        inner = self._inner_loop(nest)
        body = [*nest.row, *inner, *nest.row_last]
        if self.rows == 1 and self.row_count == 1:
            is_shared = self.group_size < self.workers and not self.for_all
            guarded = self._guarded(body, f"{self.worker} < {self.group_size}", is_shared)
            inside = [*nest.row_first, *guarded, *nest.row_always]
            return ["{", *indented([*nest.outside, *inside]), "}"] if inside else nest.outside
        start = self.worker if self.group_size == 1 else f"{self.worker} / {self.group_size}"
        is_static = self.has_slots or bool(nest.row_always)
        if not is_static and self.row_count > 1:
            looped = loop(
                f"int row = {start}; row < {self.rows}; row += {self.row_step}", [*nest.row_first, *body], unroll=False
            )
            return ["{", *indented([*nest.outside, *looped]), "}"]
        row = f"const int row = {start if self.row_count == 1 else f'rr * {self.row_step} + {start}'};"
        guarded = self._guarded(body, f"row < {self.rows}", self.rows % self.row_step != 0)
        inside = [row, *nest.row_first, *guarded, *nest.row_always]
        if self.row_count > 1:
            inside = loop(
                f"int rr = 0; rr < {self.row_count}; rr++", inside, unroll=self.has_slots or self.row_count <= 4
            )
        return ["{", *indented([*nest.outside, *inside]), "}"]

    @staticmethod
    def _guarded(body: list[str], condition: str, is_needed: bool) -> list[str]:
        return [f"if ({condition}) {{", *indented(body), "}"] if is_needed and body else body

    def _inner_loop(self, nest: Nest) -> list[str]:
        if self.rows_only or not (nest.group or nest.element or nest.group_last):
            return [*nest.group, *nest.element, *nest.group_last]
        elements = nest.element
        if self.width > 1 and elements:
            elements = loop(f"int e = 0; e < {self.width}; e++", elements, unroll=True)
        body = [*nest.group, *elements, *nest.group_last]
        if self.columns == 1:
            return self._guarded(body, f"{self.worker} % {self.group_size} == 0", self.group_size > 1)
        own = self.worker if self.group_size >= self.workers else f"{self.worker} % {self.group_size}"
        start = "0" if self.group_size == 1 else own
        scaled = start if self.width == 1 or start == "0" else f"{start} * {self.width}"
        step = self.group_size * self.width
        if self.chunk_count == 1:
            head = [f"const int col = {scaled};"]
            inside = [*head, *self._guarded(body, f"col < {self.columns}", self.columns != step)]
            return ["{", *indented(inside), "}"]
        if self.has_slots and self.chunk_count <= MOST_UNROLLED:
            place = f"cc * {step}" if start == "0" else f"cc * {step} + {scaled}"
            guarded = self._guarded(body, f"col < {self.columns}", self.columns % step != 0)
            return loop(
                f"int cc = 0; cc < {self.chunk_count}; cc++", [f"const int col = {place};", *guarded], unroll=True
            )
        return loop(f"int col = {scaled}; col < {self.columns}; col += {step}", body, unroll=min(4, self.chunk_count))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductLayout:
    """How the warps of a block share a product of (rows x depth) by (depth x columns), `matrices` of them.

    Attributes: row_tiles, column_tiles: tensor-core tiles of 16 rows and of 8 columns that one warp owns; depth_steps:
    steps of `depth_step` elements of the contracted axis that one warp takes; warp_rows, warp_columns, warp_depth: warps
    along each; warps: of the block.
    """

    matrices: int
    row_tiles: int
    column_tiles: int
    depth_steps: int
    depth_step: int
    warp_rows: int
    warp_columns: int
    warp_depth: int
    warps: int

    @property
    def used_warps(self) -> int:
        """Warps that take part."""
        return self.warp_rows * self.warp_columns * self.warp_depth

    @property
    def rows(self) -> int:
        """Padded rows."""
        return 16 * self.row_tiles * self.warp_rows

    @property
    def columns(self) -> int:
        """Padded columns."""
        return 8 * self.column_tiles * self.warp_columns

    @property
    def accumulators(self) -> int:
        """Floats a thread holds."""
        return 4 * self.matrices * self.row_tiles * self.column_tiles

    @property
    def row_text(self) -> str:
        """C text of the warp's place along the rows."""
        return (
            "0" if self.warp_rows == 1 else "warp" if self.used_warps == self.warp_rows else f"warp % {self.warp_rows}"
        )

    @property
    def column_text(self) -> str:
        """C text of the warp's place along the columns."""
        return self._part(self.warp_rows, self.warp_columns, self.warp_depth == 1)

    @property
    def depth_text(self) -> str:
        """C text of the warp's place along the depth."""
        return self._part(self.warp_rows * self.warp_columns, self.warp_depth, True)

    @staticmethod
    def _part(below: int, count: int, is_last: bool) -> str:
        if count == 1:
            return "0"
        text = "warp" if below == 1 else f"warp / {below}"
        return text if is_last else f"{text} % {count}"

    @property
    def dims(self) -> str:
        """Dimensions of the array of accumulators."""
        batch = f"[{self.matrices}]" if self.matrices > 1 else ""
        return f"{batch}[{self.row_tiles}][{self.column_tiles}][4]"

    @property
    def row_key(self) -> Hashable:
        """Which rows a thread owns."""
        return ("fragment rows", self.matrices, self.row_tiles, self.warp_rows, self.used_warps)

    @property
    def key(self) -> Hashable:
        """Which elements a thread owns."""
        return (*self.row_key, self.column_tiles, self.warp_columns)  # type: ignore[misc]

    def guarded(self, lines: list[str]) -> list[str]:
        """Return statements that only the warps that take part execute."""
        if self.used_warps == self.warps:
            return lines
        return [f"if (warp < {self.used_warps}) {{", *indented(lines), "}"]


def tile_base(place: str, tiles: int, size: int, tile: str) -> str:
    """Return C text of the first row (column) of tile `tile` of a warp at `place` that owns `tiles` of `size` each."""
    within = "0" if tiles == 1 else tile
    if place == "0":
        return "0" if within == "0" else f"{within} * {size}"
    base = f"{place} * {tiles * size}" if " " not in place else f"({place}) * {tiles * size}"
    return base if within == "0" else f"{base} + {within} * {size}"


class FragmentWalk(Walk):
    """The elements of a product's result where tensor cores leave them: rows g and g + 8, pairs of columns."""

    def __init__(self, layout: ProductLayout, space: Shape, *, rows_only: bool = False) -> None:
        self.layout, self.space, self.rows_only = layout, space, rows_only
        self.inner = len(space) - 1
        self.width = 1 if rows_only else 2
        self.row_key = layout.row_key
        self.element_key = (layout.row_key, "rows") if rows_only else layout.key
        batch = "" if layout.matrices == 1 else "[matrix]"
        tile = "[0]" if layout.row_tiles == 1 else "[mt]"
        column = "[0]" if layout.column_tiles == 1 else "[nt]"
        outer = f"[{layout.matrices}]" if layout.matrices > 1 else ""
        self.row_dims = f"{outer}[{layout.row_tiles}][2]"
        self.row_slots = 2 * layout.matrices * layout.row_tiles
        self.row_slot = f"{batch}{tile}[half]"
        self.element_dims, self.element_slots = layout.dims, layout.accumulators
        self.element_slot = f"{batch}{tile}{column}[2 * half + e]"
        if rows_only:
            self.element_dims, self.element_slots, self.element_slot = self.row_dims, self.row_slots, self.row_slot
        self.lanes = 4
        self.slices = layout.warp_columns * layout.warp_depth
        self.slice_text = f"warp / {layout.warp_rows}" if layout.warp_rows > 1 else "warp"
        if self.slices == 1:
            self.slice_text = "0"
        self.leader, self.row_guard = "lane % 4 == 0", []
        found: list[Index] = []
        matrix, step = Index("matrix", Level.ROW, layout.matrices), layout.matrices
        for extent in space[:-2]:
            step //= extent
            found.append(remainder(quotient(matrix, step), extent) if layout.matrices > 1 else ZERO)
        if len(space) > 1:
            found.append(Index("row", Level.ROW, layout.rows))
        found.append(ZERO if rows_only else Index("(col + e)", Level.ELEMENT, layout.columns, "col"))
        self.index = tuple(found)

    def text(self, nest: Nest) -> list[str]:
        """Return the loop nest."""
        layout = self.layout
        inner: list[str] = []
        if not self.rows_only and (nest.group or nest.element or nest.group_last):
            elements = loop("int e = 0; e < 2; e++", nest.element, unroll=True) if nest.element else []
            base = tile_base(layout.column_text, layout.column_tiles, 8, "nt")
            col = "const int col = lane % 4 * 2;" if base == "0" else f"const int col = {base} + lane % 4 * 2;"
            inner = [col, *nest.group, *elements, *nest.group_last]
            if layout.column_tiles > 1:
                inner = loop(f"int nt = 0; nt < {layout.column_tiles}; nt++", inner, unroll=True)
            else:
                inner = ["{", *indented(inner), "}"]
        elif self.rows_only:
            inner = [*nest.group, *nest.element, *nest.group_last]
        base = tile_base(layout.row_text, layout.row_tiles, 16, "mt")
        row = f"const int row = {'' if base == '0' else base + ' + '}lane / 4 + 8 * half;"
        body = [row, *nest.row_first, *nest.row, *inner, *nest.row_last, *nest.row_always]
        body = loop("int half = 0; half < 2; half++", body, unroll=True)
        if layout.row_tiles > 1:
            body = loop(f"int mt = 0; mt < {layout.row_tiles}; mt++", body, unroll=True)
        if layout.matrices > 1:
            body = loop(f"int matrix = 0; matrix < {layout.matrices}; matrix++", body, unroll=True)
        return ["{", *indented([*nest.outside, *layout.guarded(body)]), "}"]


class OperandWalk(FragmentWalk):
    """The elements of a product's left operand as ldmatrix leaves them: four registers of two neighbours each.

    Register `quad` holds row lane / 4 (+ 8 where quad is odd) and two columns (8 further in the last two). A row is shared
    by four lanes, and by the warps along the depth. `text` walks over the rows alone, for what comes after the loop.
    """

    def __init__(self, layout: ProductLayout, space: Shape) -> None:
        super().__init__(layout, space)
        self.element_key = ("operand", layout.key)
        batch = "[matrix]" if layout.matrices > 1 else ""
        tile = "[0]" if layout.row_tiles == 1 else "[mt]"
        self.own_slot, self.quad_slot = self.row_slot, f"{batch}{tile}[quad % 2]"
        depth = -(-space[-1] // 16) * 16
        found = list(self.index)
        if len(space) > 1:
            found[-2] = Index("row", Level.ROW, layout.rows)
        found[-1] = Index("(col + e)", Level.ELEMENT, depth, "col")
        self.index = tuple(found)

    def operand_lines(self, nest: Nest) -> list[str]:
        """Return the statements for one 16 x 16 fragment, `left[mt]` (or left[0]) at depth `depth`."""
        base = tile_base(self.layout.row_text, self.layout.row_tiles, 16, "mt")
        row = f"const int row = {'' if base == '0' else base + ' + '}lane / 4 + quad % 2 * 8;"
        col = "const int col = depth + lane % 4 * 2 + quad / 2 * 8;"
        elements = loop("int e = 0; e < 2; e++", nest.element, unroll=True) if nest.element else []
        body = [row, col, *nest.row_first, *nest.row, *nest.group, *elements, *nest.group_last]
        return [*nest.outside, *loop("int quad = 0; quad < 4; quad++", body, unroll=True)]
