"""How many passes over the banks of shared memory an access of a warp takes, for each layout of a tile.

Invariant: counted, not estimated: the addresses of the 32 threads are made and their 4-byte words are dealt over the 32
banks; words of one bank that differ take a pass each. Sources: CUDA C++ Programming Guide, "Shared Memory" (32 banks of 4
bytes, words read by several threads are broadcast); PTX ISA, ldmatrix and mma.m16n8k16 (which thread has which element);
the swizzle is that of the device header, `tiles.cuh`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from workbench.core.layouts import SharedLayout, Spread

BANKS, WORD, CHUNK = 32, 4, 16
WARP = 32
FRAGMENT_ROWS, FRAGMENT_COLUMNS = 8, 8


def passes(addresses: Iterable[int], nbytes: int) -> int:
    """Return the passes of one access of `nbytes` a thread at these byte addresses; wide accesses go in parts of a warp."""
    found = list(addresses)
    together = max(1, min(len(found), BANKS * WORD // max(nbytes, WORD)))
    total = 0
    for start in range(0, len(found), together):
        words = {
            (address + offset) // WORD
            for address in found[start : start + together]
            for offset in range(0, nbytes, WORD)
        }
        counts: dict[int, int] = {}
        for word in words:
            counts[word % BANKS] = counts.get(word % BANKS, 0) + 1
        total += max(counts.values(), default=0)
    return total


def row_chunks(columns: int, nbytes: int, spread: Spread) -> int:
    """Return the 16-byte chunks from row to row: whole ones, made odd by padding."""
    chunks = -(-columns * nbytes // CHUNK)
    return chunks + 1 if spread is Spread.PADDED and chunks % 2 == 0 else chunks


def tile_bytes(rows: int, columns: int, nbytes: int, layout: SharedLayout) -> int:
    """Return the bytes of a matrix (rows, columns) in this layout, padding included."""
    if layout.innermost == -2:
        rows, columns = columns, rows
    if layout.spread is Spread.PLAIN:
        return rows * columns * nbytes
    return rows * row_chunks(columns, nbytes, layout.spread) * CHUNK


def address(row: int, column: int, columns: int, nbytes: int, spread: Spread) -> int:
    """Return the byte address of an element of a tile whose rows are contiguous."""
    if spread is Spread.PLAIN:
        return (row * columns + column) * nbytes
    chunks = row_chunks(columns, nbytes, spread)
    chunk, within = divmod(column * nbytes, CHUNK)
    if spread is Spread.SWIZZLED:
        power = next(p for p in (8, 4, 2, 1) if chunks % p == 0)
        chunk ^= (row // (8 // power)) & (power - 1)
    return (row * chunks + chunk) * CHUNK + within


@lru_cache(maxsize=4096)
def ldmatrix_passes(columns: int, nbytes: int, spread: Spread) -> int:
    """Return the passes in which ldmatrix reads 8 rows of 16 bytes, the worst over the chunks of a row; 1 is the least.

    0 where rows do not start at 16-byte addresses, so that ldmatrix cannot read them.
    """
    if spread is Spread.PLAIN and columns * nbytes % CHUNK:
        return 0
    chunks = max(1, columns * nbytes // CHUNK)
    per_chunk = CHUNK // nbytes
    return max(
        passes((address(row, chunk * per_chunk, columns, nbytes, spread) for row in range(8)), CHUNK)
        for chunk in range(chunks)
    )


@lru_cache(maxsize=4096)
def walk_passes(rows: int, columns: int, nbytes: int, spread: Spread, *, along_rows: bool) -> int:
    """Return the passes in which 32 threads read neighbouring elements: of a row, or (`along_rows`) of a column.

    rows, columns: of the tile as it lies, rows contiguous. Fewer than 32 elements in that direction go on in the next.
    """
    extent = rows if along_rows else columns
    found = []
    for lane in range(min(WARP, rows * columns)):
        inner, outer = lane % extent, lane // extent
        row, column = (inner, outer) if along_rows else (outer, inner)
        found.append(address(row, column, columns, nbytes, spread))
    return passes(found, nbytes)


@lru_cache(maxsize=4096)
def fragment_passes(columns: int, nbytes: int, spread: Spread, *, transposed: bool) -> int:
    """Return the passes in which a warp stores or reads one 8 x 8 part of a product's fragment.

    Thread t has row t / 4 and columns 2 (t % 4) and the next: one access of two elements, or two where the tile lies
    transposed.
    """
    pairs = [(lane // 4, 2 * (lane % 4)) for lane in range(WARP)]
    if transposed:
        one = [address(column, row, columns, nbytes, spread) for row, column in pairs]
        two = [address(column + 1, row, columns, nbytes, spread) for row, column in pairs]
        return passes(one, nbytes) + passes(two, nbytes)
    return passes((address(row, column, columns, nbytes, spread) for row, column in pairs), 2 * nbytes)
