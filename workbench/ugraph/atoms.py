"""Dimensions as products of atoms: which extents are tied, which are cut into tiles, which are sums of others.

A dimension is a run of atoms, the outermost first: (splits, columns) is a dimension of 16 * 64. Invariant: the extent of
a dimension is the product of its run's extents, except where a ragged cut says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from math import prod

Run = tuple[int, ...]


class AtomKind(Enum):
    """Where an atom comes from; an atom that several places share has several kinds."""

    AXIS = "axis"  # a dimension of a program input, or one that an operator made
    FACTOR = "factor"  # of a dimension that an operator split
    JOINED = "joined"  # a concatenation
    FIXED = "fixed"  # a number of pieces
    GRID = "grid"  # a count of blocks
    LOOP = "loop"  # a count of iterations
    TILE = "tile"  # what a cut leaves of an axis


@dataclass(slots=True)
class Cut:
    """A dimension cut by the grid and the loop of one launch.

    Attributes: launch; base: the whole dimension; axes: what cuts it, 0 to 2 for grid x, y, z and 3 for the loop, from
    the outermost; counts: an atom for each; tile: what is left; aligned: the base's atoms were matched with these.
    """

    launch: int
    base: Run
    axes: tuple[int, ...]
    counts: Run
    tile: Run
    aligned: bool = False


class Atoms:
    """Atoms with union and splitting.

    Attributes: cuts; equalities: pairs of runs of equal extent that no common refinement aligns; sums: (run, parts), a
    concatenation and its parts; fixed: atoms whose extent must not change; on_clash: called with two atoms that stand
    beside each other in a tensor and are about to become one; watched: whether who stands beside whom is kept, without
    which `on_clash` is never called and `would_clash` must not be.
    """

    def __init__(self, on_clash: Callable[[int, int], None] | None = None, *, watched: bool = True) -> None:
        self.extents: list[int] = []
        self.kinds: list[set[AtomKind]] = []
        self._parent: list[int] = []
        self._parts: dict[int, Run] = {}
        self._beside: list[set[int]] = []
        self.cuts: list[Cut] = []
        self.equalities: list[tuple[Run, Run]] = []
        self.sums: list[tuple[Run, tuple[Run, ...]]] = []
        self.fixed: set[int] = set()
        self.on_clash = on_clash
        self.watched = watched

    # ------------------------------------------------------------------------------------------------------ reading
    def fresh(self, extent: int, kind: AtomKind) -> int:
        """Return a new atom."""
        self.extents.append(extent)
        self.kinds.append({kind})
        self._parent.append(len(self._parent))
        self._beside.append(set())
        return len(self._parent) - 1

    def find(self, atom: int) -> int:
        """Return the representative of an atom."""
        while self._parent[atom] != atom:
            self._parent[atom] = self._parent[self._parent[atom]]
            atom = self._parent[atom]
        return atom

    def resolve(self, run: Sequence[int]) -> Run:
        """Return a run in representatives that are not split."""
        if not self._parts:  # most graphs split no atom
            parent = self._parent
            return tuple([atom if parent[atom] == atom else self.find(atom) for atom in run])
        result: list[int] = []
        for atom in run:
            root = self.find(atom)
            result += self.resolve(self._parts[root]) if root in self._parts else (root,)
        return tuple(result)

    def normal(self, run: Sequence[int]) -> Run:
        """Return a resolved run in which counts followed by their tile are the whole dimension again."""
        current = self.resolve(run)
        changed = len(current) > 1 and bool(self.cuts)  # counts and a tile are two atoms or more
        while changed:
            changed = False
            for cut in self.cuts:
                outermost = self.find(cut.counts[0])
                if outermost not in current and outermost not in self._parts:
                    continue  # most cuts are of other dimensions
                if len(current) < len(cut.counts) + len(cut.tile):
                    continue
                whole = self.resolve(cut.counts + cut.tile)
                at = _position(whole, current)
                if at is None:
                    continue
                base = self.resolve(cut.base)
                if base != whole:
                    current = self.resolve(current[:at] + base + current[at + len(whole) :])
                    changed = True
                    break
        return current

    def continued(self, outer: Sequence[int], inner: Sequence[int]) -> Run | None:
        """Return `outer` and `inner` together when the first goes on where a cut left the second, else None."""
        both = self.resolve((*outer, *inner))
        for cut in self.cuts:
            whole = self.resolve(cut.counts + cut.tile)
            if both == whole[len(whole) - len(both) :]:
                return self.normal(both)
        return None

    def extent(self, run: Sequence[int]) -> int:
        """Return the product of the extents of a run."""
        return prod(self.extents[atom] for atom in self.resolve(run))

    def has_kind(self, atom: int, kind: AtomKind) -> bool:
        """Return True when one of the places that share an atom is of this kind."""
        return kind in self.kinds[self.find(atom)]

    def is_unit(self, run: Sequence[int]) -> bool:
        """Return True for a dimension of extent 1 that is no tile of a longer one: broadcasting may stretch it."""
        atoms, extents = self.resolve(run), self.extents
        return all([extents[atom] == 1 for atom in atoms]) and not any(map(self._of_longer, atoms))

    def _of_longer(self, atom: int) -> bool:
        return any(atom in self.resolve(cut.tile) and self.extent(cut.base) > 1 for cut in self.cuts)

    def roots(self) -> Iterator[int]:
        """Yield the representatives that are not split, in order of creation."""
        return (a for a in range(len(self._parent)) if self._parent[a] == a and a not in self._parts)

    # ---------------------------------------------------------------------------------------------------- unification
    def beside(self, dims: Sequence[Run]) -> None:
        """Note that these dimensions belong to one tensor: none of their atoms is another."""
        if not self.watched:
            return
        atoms = [atom for run in dims for atom in self.resolve(run)]
        for number, atom in enumerate(atoms):
            if self.on_clash is not None and atom in atoms[:number]:
                self.on_clash(atom, atom)
            self._beside[atom].update(other for other in atoms if other != atom)

    def fix(self, run: Sequence[int]) -> None:
        """Let the extents of a run never change."""
        self.fixed.update(run)

    def is_fixed(self, atom: int) -> bool:
        """Return True when an atom's extent must not change."""
        return any(atom in self.resolve((fixed,)) for fixed in self.fixed)

    def same(self, left: Sequence[int], right: Sequence[int]) -> None:
        """Make two dimensions the same, aligned from the innermost atom; longer atoms are split where they meet.

        Where no common refinement exists (6 * 4 against 8 * 3), only the extents stay tied.
        """
        self._align(list(self.normal(left)), list(self.normal(right)))

    def _align(self, a: list[int], b: list[int]) -> None:
        while a and b and a[0] == b[0]:
            del a[0], b[0]
        while a and b:
            a[-1:], b[-1:] = self.resolve(a[-1:]), self.resolve(b[-1:])
            x, y = a[-1], b[-1]
            m, n = self.extents[x], self.extents[y]
            if x == y or (m == n and (m > 1 or self._are_alike(x, y))):
                self._union(x, y)
                a.pop()
                b.pop()
            elif m == 1 and (n > 1 or self.is_unit((x,)) or not self.is_unit((y,))):
                self.fix((a.pop(),))
            elif n == 1:
                self.fix((b.pop(),))
            elif n % m == 0:
                self._split(y, x)
                a, b = self._rest(a[:-1], b, x)
            elif m % n == 0:
                self._split(x, y)
                b, a = self._rest(b[:-1], a, y)
            else:
                if (tuple(a), tuple(b)) not in self.equalities:
                    self.equalities.append((tuple(a), tuple(b)))
                return
        self.fix(a + b)

    def _are_alike(self, x: int, y: int) -> bool:
        """Return True when two atoms of extent 1 are both no tiles, or tiles of equally long axes that are cut alike."""
        return self._cut_of(x) == self._cut_of(y)

    def _cut_of(self, atom: int) -> set[tuple[int, tuple[int, ...], int]]:
        return {
            (cut.launch, cut.axes, self.extent(cut.base))
            for cut in self.cuts
            if atom in self.resolve(cut.tile) and self.extent(cut.base) > 1
        }

    def _rest(self, shorter: list[int], longer: list[int], met: int) -> tuple[list[int], list[int]]:
        """Return both runs after `met` was split off the innermost atom of the longer one."""
        inner = list(self.resolve(longer[-1:]))
        if inner[-1] == self.find(met):
            return shorter, longer[:-1] + inner[:-1]
        return [*shorter, met], longer[:-1] + inner  # the tile was aligned with its base instead; meet again

    def would_clash(self, left: Sequence[int], right: Sequence[int]) -> bool:
        """Return True when making two dimensions the same would make two dimensions of one tensor the same."""
        a = [(atom, self.extents[atom]) for atom in self.normal(left)]
        b = [(atom, self.extents[atom]) for atom in self.normal(right)]
        while a and b:
            (x, m), (y, n) = a[-1], b[-1]
            if x != y and (m > 1) == (n > 1) and self._are_beside(x, y):
                return True
            if m == n:
                del a[-1], b[-1]
            elif m == 1 or (n > 1 and n % m == 0):
                b[-1] = (y, n if m == 1 else n // m)
                del a[-1]
            elif n == 1 or m % n == 0:
                a[-1] = (x, m if n == 1 else m // n)
                del b[-1]
            else:
                return False
        return False

    def _union(self, x: int, y: int) -> None:
        if x == y:
            return
        self._check(x, y)
        root, other = min(x, y), max(x, y)
        self._parent[other] = root
        self.kinds[root] |= self.kinds[other]
        self._beside[root] |= self._beside[other]

    def _split(self, longer: int, inner: int) -> None:
        """Split an atom into a new one and `inner`; a tile of a product is first aligned with it."""
        for cut in self.cuts:
            if self.resolve(cut.tile) == (longer,) and not cut.aligned and len(self.resolve(cut.base)) > 1:
                cut.aligned = True
                if self.extent(cut.base) == self.extent(cut.counts + cut.tile):
                    self._align(list(self.resolve(cut.base)), list(self.resolve(cut.counts + cut.tile)))
                    if self.resolve((longer,)) != (longer,):
                        return
        self._check(longer, inner)
        outer = self.fresh(self.extents[longer] // self.extents[inner], AtomKind.FACTOR)
        self.kinds[outer] |= self.kinds[longer]
        self.kinds[inner] |= self.kinds[longer] & {AtomKind.GRID, AtomKind.LOOP}
        self._beside[outer] |= self._beside[longer] | {inner}
        self._beside[inner] |= self._beside[longer] | {outer}
        self._parts[longer] = (outer, inner)

    def _check(self, x: int, y: int) -> None:
        if self.on_clash is not None and self._are_beside(x, y):
            self.on_clash(x, y)

    def _are_beside(self, x: int, y: int) -> bool:
        return any(b in self.resolve((other,)) for a, b in ((x, y), (y, x)) for other in self._beside[a])

    # -------------------------------------------------------------------------------------------- cuts and concatenations
    def cut(self, launch: int, base: Run, axes: tuple[int, ...], counts: Run, tile_extent: int) -> Run:
        """Return the tile that counts leave of a dimension; the same cut of the same dimension leaves the same tile."""
        whole = self.normal(base)
        for cut in self.cuts:
            if (cut.launch, cut.axes) == (launch, axes) and self.normal(cut.base) == whole:
                return cut.tile
        tile = (self.fresh(tile_extent, AtomKind.TILE),)
        self.cuts.append(Cut(launch, whole, axes, counts, tile))
        return tile

    def join(self, parts: tuple[Run, ...]) -> Run:
        """Return the dimension that lays these one after the other."""
        resolved = tuple(self.normal(part) for part in parts)
        for run, known in self.sums:
            if tuple(self.normal(part) for part in known) == resolved:
                return run
        joined = (self.fresh(sum(self.extent(part) for part in parts), AtomKind.JOINED),)
        self.sums.append((joined, parts))
        return joined

    def settle(self) -> None:
        """Draw the conclusions: equal cuts of one dimension have one tile, one tile cut alike is of one dimension.

        Concatenations of equal extents that became one have equal parts.
        """
        alike = [
            (cut, other)
            for number, cut in enumerate(self.cuts)
            for other in self.cuts[:number]
            if cut.launch == other.launch
            and cut.axes == other.axes
            and self.extent(cut.base) == self.extent(other.base)
        ]
        before = -1
        while before != (before := self._state()):
            for cut, other in alike:
                if self.normal(cut.base) == self.normal(other.base):
                    self.same(cut.tile, other.tile)
                elif self.resolve(cut.tile) == self.resolve(other.tile) and cut.tile:
                    self.same(cut.base, other.base)
            for number, (run, parts) in enumerate(self.sums):
                for other_run, other_parts in self.sums[:number]:
                    extents = [[self.extent(part) for part in group] for group in (parts, other_parts)]
                    if self.resolve(run) == self.resolve(other_run) and extents[0] == extents[1]:
                        for part, other_part in zip(parts, other_parts, strict=True):
                            self.same(part, other_part)

    def _state(self) -> int:
        return len(self._parent) + sum(1 for a, parent in enumerate(self._parent) if a != parent)


def _position(part: Run, whole: Run) -> int | None:
    """Return where a non-empty run stands inside another, None if it does not."""
    for at in range(len(whole) - len(part) + 1):
        if part and whole[at : at + len(part)] == part:
            return at
    return None
