"""Matrix products on tensor cores: the loops over depth and tiles around ldmatrix and mma.

Invariant: a warp owns its tiles of the result in registers; operands' padding is zero, so the loops need no edge.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from workbench.codegen.cuda.loads import matrix_index
from workbench.codegen.cuda.steps import Operand, ProductStep, Stage
from workbench.codegen.cuda.tile_storage import SharedTile, rounded_up
from workbench.codegen.cuda.tile_values import Mapped, TileValue
from workbench.codegen.cuda.walks import ProductLayout, indented, loop, tile_base
from workbench.core.shapes import Shape

FULL_UNROLL = 8
"""Steps of the depth that are unrolled completely."""


Prologue = Callable[[Stage, TileValue, str], list[str]]
"""Stage, value and C name of a fragment of the left operand -> the statements that work on it."""


def product_lines(step: ProductStep, prologue: Prologue) -> list[str]:
    """Return the statements of a product; `prologue` writes what is done with fragments of the left operand."""
    layout = step.layout
    body: list[str] = []
    if step.is_warpgroup:
        body = [*(scaling_lines(step) if step.scale else []), *warpgroup_lines(step)]
        return layout.guarded(body)
    for number, (left, right) in enumerate(step.operands):
        depth = rounded_up(step.value.pairs[number][0].shape[-1], 16) // layout.depth_step // layout.warp_depth
        body += pair_lines(step, left, right, depth, prologue)
    if step.scale:
        body = [*scaling_lines(step), *body]
    if layout.matrices > 1:
        body = loop(f"int matrix = 0; matrix < {layout.matrices}; matrix++", body, unroll=True)
    return layout.guarded(body)


def scaling_lines(step: ProductStep) -> list[str]:
    """Return statements that scale the left operand's rows by a power of two so that they fit float16.

    The scale of a row only shrinks, and what was accumulated follows it; powers of two lose nothing. `unscaled_lines`
    undoes it.
    """
    layout, left = step.layout, step.operands[0][0]
    rows = "mt" if layout.row_tiles > 1 else "0"
    batch = "[matrix]" if layout.matrices > 1 else ""
    element = f"{left.registers}{batch}[{rows}][nt][2 * half + e]"
    total = f"{step.variable}{batch}[{rows}][nt][2 * half + e]"
    scale = f"{step.scale}{batch}[{rows}][half]"
    pair = "int e = 0; e < 2; e++"
    across = f"int nt = 0; nt < {layout.depth_steps * 2}; nt++"
    own = f"int nt = 0; nt < {layout.column_tiles}; nt++"
    size = element if is_never_negative(left.value) else f"magnitude({element})"
    largest = loop(pair, [f"largest = maximum(largest, {size});"], unroll=True)
    lines = [
        "float largest = 0.0f;",
        *loop(across, largest, unroll=True),
        f"const float scale = lesser_scale({scale}, warp_max<4>(largest));",
        f"const float shrink = shrinkage(scale, {scale});",
        f"{scale} = scale;",
        *loop(across, loop(pair, [f"{element} *= scale;"], unroll=True), unroll=True),
        "if (shrink != 1.0f) {",
        *indented(loop(own, loop(pair, [f"{total} *= shrink;"], unroll=True), unroll=True)),
        "}",
    ]
    lines = loop("int half = 0; half < 2; half++", lines, unroll=True)
    if layout.row_tiles > 1:
        lines = loop(f"int mt = 0; mt < {layout.row_tiles}; mt++", lines, unroll=True)
    return ["// rows are scaled by powers of two so that they fit float16; the sums follow", *lines]


def is_never_negative(value: TileValue) -> bool:
    """Return True for values that are their own magnitude."""
    return isinstance(value, Mapped) and value.op in ("exp", "sigmoid", "relu", "square", "abs")


def scale_start(step: ProductStep) -> list[str]:
    """Return the definition of a scaled product's scales."""
    layout = step.layout
    batch = f"[{layout.matrices}]" if layout.matrices > 1 else ""
    count = 2 * layout.matrices * layout.row_tiles
    first = "[0]" * (3 if batch else 2)
    return [
        f"float {step.scale}{batch}[{layout.row_tiles}][2];",
        *loop(f"int e = 0; e < {count}; e++", [f"(&{step.scale}{first})[e] = largest_scale();"], unroll=True),
    ]


def unscaled_lines(step: ProductStep) -> list[str]:
    """Return statements that undo the scaling of a product's result."""
    layout = step.layout
    rows = "mt" if layout.row_tiles > 1 else "0"
    batch = "[matrix]" if layout.matrices > 1 else ""
    line = f"{step.variable}{batch}[{rows}][nt][2 * half + e] *= back;"
    lines = loop("int e = 0; e < 2; e++", [line], unroll=True)
    lines = loop(f"int nt = 0; nt < {layout.column_tiles}; nt++", lines, unroll=True)
    lines.insert(0, f"const float back = 1.0f / {step.scale}{batch}[{rows}][half];")
    lines = loop("int half = 0; half < 2; half++", lines, unroll=True)
    if layout.row_tiles > 1:
        lines = loop(f"int mt = 0; mt < {layout.row_tiles}; mt++", lines, unroll=True)
    if layout.matrices > 1:
        lines = loop(f"int matrix = 0; matrix < {layout.matrices}; matrix++", lines, unroll=True)
    return lines


def pair_lines(step: ProductStep, left: Operand, right: Operand, depth_steps: int, prologue: Prologue) -> list[str]:
    """Return the loops of one pair of factors over this warp's depth; `depth_steps`: its steps.

    Products joined to this one take the same fragments of the left factor.
    """
    layout, lead = step.layout, step.value.shape[:-2]
    split = step.c_type == "float"
    low = tile_base(layout.depth_text, depth_steps, layout.depth_step, "low")
    lines = [f"const int depth = {low};"]
    a_tiles = layout.row_tiles
    row = tile_base(layout.row_text, layout.row_tiles, 16, "mt")
    load_left = [left_load(step, left, matrix_row(left.value, left.tile, lead), row)]
    if left.prologue is not None:
        load_left += prologue(left.prologue, left.value, "left[mt]" if a_tiles > 1 else "left[0]")
    load_left = loop(f"int mt = 0; mt < {a_tiles}; mt++", load_left, unroll=True) if a_tiles > 1 else load_left
    every_depth = f"int low = 0; low < {depth_steps}; low++"
    held: list[str] = []
    if step.held_left:
        lines.append(f"u32 (&left)[{a_tiles}][4] = {step.held_left}[low];")
        held = [
            "if (step == first) {  // the same in every iteration",
            *indented(loop(every_depth, [*lines, *load_left], unroll=True)),
            "}",
        ]
    else:
        lines += [f"u32 left[{a_tiles}][4]{f', left_low[{a_tiles}][4]' if split else ''};", *load_left]
    lines += column_lines(step, left, right)
    for other in step.joined:
        lines += column_lines(other, left, other.operands[0][1])
    unroll: bool | int = True if depth_steps <= FULL_UNROLL else 4
    if split:  # three times the work a step, and twice the fragments: registers spill where steps overlap
        unroll = 1 if layout.accumulators >= 32 else 2
    return [*held, *loop(every_depth, lines, unroll=unroll)]


def warpgroup_lines(step: ProductStep) -> list[str]:
    """Return the statements of a product, and those joined to it, that warpgroups do together."""
    layout, (left, _) = step.layout, step.operands[0]
    depths, a_tiles = layout.depth_steps, layout.row_tiles
    low = tile_base(layout.depth_text, depths, layout.depth_step, "low")
    row = tile_base(layout.row_text, a_tiles, 16, "mt")
    every_depth = f"int low = 0; low < {depths}; low++"
    lefts = step.held_left or "lefts"
    load_left = [left_load(step, left, matrix_row(left.value, left.tile, ()), row)]
    load_left = loop(f"int mt = 0; mt < {a_tiles}; mt++", load_left, unroll=True) if a_tiles > 1 else load_left
    head = [f"const int depth = {low};", f"u32 (&left)[{a_tiles}][4] = {lefts}[low];"]
    loads = loop(every_depth, [*head, *load_left], unroll=True)
    once = [
        "if (step == first) {  // not before the loop: there ptxas gives these registers to a later product too",
        *indented(loads),
        "}",
    ]
    lines = once if step.held_left else [f"u32 {lefts}[{depths}][{a_tiles}][4];", *loads]
    products, ends = list[str](), list[str]()
    for one in (step, *step.joined):
        right = one.operands[0][1]
        assert right.tile is not None
        tiles, rows = one.layout.column_tiles, "mt" if a_tiles > 1 else "0"
        products.append(
            f"warpgroup_mma<{tiles}>({one.variable}[{rows}], {lefts}[low][{rows}], {right.tile.variable}, {low});"
        )
        ends.append(f"warpgroup_end<{one.layout.accumulators}>(&{one.variable}[0][0][0]);")
    products = loop(f"int mt = 0; mt < {a_tiles}; mt++", products, unroll=True) if a_tiles > 1 else products
    lines += ["warpgroup_begin();", *loop(every_depth, products, unroll=True), "warpgroup_arrive();", *ends]
    return ["{", *indented(lines), "}"]


def column_lines(step: ProductStep, left: Operand, right: Operand) -> list[str]:
    """Return the loop over this warp's columns at one step of the depth: fragments of the right factor, multiplications."""
    layout, lead = step.layout, step.value.shape[:-2]
    split = step.c_type == "float"
    a_tiles, b_tiles = layout.row_tiles, layout.column_tiles // 2
    is_odd = layout.column_tiles % 2 == 1
    base = matrix_row(right.value, right.tile, lead)
    batch = "[matrix]" if layout.matrices > 1 else ""
    first = tile_base(layout.column_text, layout.column_tiles, 8, "0")

    def across(column: str, tiles: tuple[str, ...]) -> list[str]:
        size = 2 * len(tiles)
        inner = [f"u32 right[{size}]{f', right_low[{size}]' if split else ''};"]
        inner.append(right_load(step, right, base, column, is_pair=len(tiles) == 2))
        products = [mma_line(step, left, right, f"{step.variable}{batch}", tile, n) for n, tile in enumerate(tiles)]
        return inner + (loop(f"int mt = 0; mt < {a_tiles}; mt++", products, unroll=True) if a_tiles > 1 else products)

    lines: list[str] = []
    if b_tiles > 1:
        column = tile_base(layout.column_text, b_tiles, 16, "nt") if not is_odd else plus(first, "nt * 16")
        pair = across(column, ("2 * nt", "2 * nt + 1"))
        lines += loop(f"int nt = 0; nt < {b_tiles}; nt++", pair, unroll=True)
    elif b_tiles == 1:
        lines += ["{", *indented(across(first, ("0", "1"))), "}"]
    if is_odd:  # the last 8 columns of the warp
        last = layout.column_tiles - 1
        lines += ["{", *indented(across(plus(first, str(last * 8)), (str(last),))), "}"]
    return lines


def matrix_row(value: TileValue, tile: SharedTile | None, lead: Shape) -> str:
    """Return C text of the first row of the current matrix of a factor, whose leading axes may be broadcast."""
    own = (1,) * (len(lead) - len(value.shape[:-2])) + value.shape[:-2]
    if tile is None or prod(own) == 1:
        return ""
    terms = []
    for axis, extent in enumerate(own):
        if extent > 1:
            terms.append(_scaled(matrix_index(lead, axis), prod(own[axis + 1 :]) * tile.rows))
    return " + ".join(terms)


def _scaled(text: str, factor: int) -> str:
    return text if factor == 1 else f"{text} * {factor}"


def plus(base: str, text: str) -> str:
    """Return C text of a sum, where "" and "0" are nothing."""
    parts = [part for part in (base, text) if part not in ("", "0")]
    return " + ".join(parts) or "0"


def left_load(step: ProductStep, left: Operand, base: str, row: str) -> str:
    """Return the statement that brings rows `row` .. of the left factor into registers."""
    fragment = "left[mt]" if step.layout.row_tiles > 1 else "left[0]"
    if left.tile is None:
        batch = "[matrix]" if step.layout.matrices > 1 else ""
        source = f"{left.registers}{batch}[{'mt' if step.layout.row_tiles > 1 else '0'}]"
        return f"accumulators_to_a<{step.c_type}>({fragment}, {source}[2 * low], {source}[2 * low + 1]);"
    is_kept_by_depth = left.is_transposed != left.tile.transposed
    tile, is_short = left.tile.variable, left.tile.rows < step.layout.rows
    if step.c_type == "float":
        low = fragment.replace("left", "left_low")
        flag = "true" if is_kept_by_depth else f"false{f', {left.tile.kept_rows}' if is_short else ''}"
        return f"load_a_split<{flag}>({fragment}, {low}, {tile}, {base or '0'}, {row}, depth);"
    if is_kept_by_depth:
        return f"load_a_transposed({fragment}, {tile}, {row}, {plus(base, 'depth')});"
    if is_short:
        return f"load_a_rows<{left.tile.kept_rows}>({fragment}, {tile}, {base or '0'}, {row}, depth);"
    return f"load_a({fragment}, {tile}, {plus(base, row)}, depth);"


def right_load(step: ProductStep, right: Operand, base: str, column: str, *, is_pair: bool) -> str:
    """Return the statement that brings 16 columns of the right factor, or 8, into registers."""
    assert right.tile is not None
    is_kept_by_depth = right.is_transposed == right.tile.transposed
    tile, is_short = right.tile.variable, right.tile.rows < step.layout.columns
    load = "load_b_pair" if is_pair else "load_b"
    if step.c_type == "float":
        flag = "false" if is_kept_by_depth else f"true{f', {right.tile.kept_rows}' if is_short else ''}"
        return f"{load}_split<{flag}>(right, right_low, {tile}, {base or '0'}, depth, {column});"
    if is_kept_by_depth:
        return f"{load}(right, {tile}, {plus(base, 'depth')}, {column});"
    if is_short:
        return f"{load}_rows<{right.tile.kept_rows}>(right, {tile}, {base or '0'}, depth, {column});"
    return f"{load}_transposed(right, {tile}, depth, {plus(base, column)});"


def mma_line(step: ProductStep, left: Operand, right: Operand, variable: str, column: str, half: int) -> str:
    """Return the statement that adds one 16 x 8 product, to tile `column`, of half `half` of what was loaded."""
    rows = "mt" if step.layout.row_tiles > 1 else "0"
    place, b = f"{variable}[{rows}][{column}]", "right" if half == 0 else "right + 2"
    if step.c_type != "float":
        return f"mma<{step.c_type}>({place}, left[{rows}], {b});"
    flags = ", ".join("true" if side.tile is None or side.tile.c_type == "float" else "false" for side in (left, right))
    low = "right_low" if half == 0 else "right_low + 2"
    return f"mma_split<{flags}>({place}, left[{rows}], left_low[{rows}], {b}, {low});"


def store_fragments(layout: ProductLayout, variable: str, tile: SharedTile) -> list[str]:
    """Return statements that write a product's fragments to a shared tile, one slice per part of the depth."""
    row = tile_base(layout.row_text, layout.row_tiles, 16, "mt")
    column = tile_base(layout.column_text, layout.column_tiles, 8, "nt")
    batch = "[matrix]" if layout.matrices > 1 else ""
    base = ""
    if layout.warp_depth > 1:
        base = f"({layout.depth_text}) * {tile.slice_rows}"
    if layout.matrices > 1:
        base = plus(base, f"matrix * {tile.rows}")
    rows = "mt" if layout.row_tiles > 1 else "0"
    columns = "nt" if layout.column_tiles > 1 else "0"
    lines = [f"store_d({tile.variable}, {plus(base, row)}, {column}, {variable}{batch}[{rows}][{columns}]);"]
    if layout.column_tiles > 1:
        lines = loop(f"int nt = 0; nt < {layout.column_tiles}; nt++", lines, unroll=True)
    if layout.row_tiles > 1:
        lines = loop(f"int mt = 0; mt < {layout.row_tiles}; mt++", lines, unroll=True)
    if layout.matrices > 1:
        lines = loop(f"int matrix = 0; matrix < {layout.matrices}; matrix++", lines, unroll=True)
    return layout.guarded(lines)


def zeroed(variable: str, dims: str) -> str:
    """Return the definition of an array of zeros."""
    return f"float {variable}{dims} = {{}};"
