from __future__ import annotations

from workbench.ugraph.atoms import AtomKind, Atoms, Run


def axis(atoms: Atoms, extent: int) -> Run:
    return (atoms.fresh(extent, AtomKind.AXIS),)


def run(atoms: Atoms, *extents: int) -> Run:
    return tuple(atoms.fresh(extent, AtomKind.AXIS) for extent in extents)


def extents(atoms: Atoms, dimension: Run) -> list[int]:
    return [atoms.extents[atom] for atom in atoms.resolve(dimension)]


def test_equal_dimensions_become_one() -> None:
    atoms = Atoms()
    a, b, c = (axis(atoms, 6) for _ in range(3))
    atoms.same(a, b)
    atoms.same(b, c)
    assert atoms.resolve(a) == atoms.resolve(b) == atoms.resolve(c)


def test_longer_atoms_are_split_where_they_meet() -> None:
    atoms = Atoms()
    whole, factors = axis(atoms, 24), run(atoms, 3, 8)
    atoms.same(whole, factors)
    assert atoms.resolve(whole) == factors
    other = run(atoms, 6, 4)
    atoms.same(whole, other)
    assert extents(atoms, whole) == [3, 2, 4]
    assert atoms.resolve(whole) == atoms.resolve(other)


def test_boundaries_that_do_not_meet_leave_an_equality() -> None:
    atoms = Atoms()
    left, right = run(atoms, 6, 4), run(atoms, 8, 3)
    atoms.same(left, right)
    assert atoms.equalities == [(left, right)]
    assert atoms.resolve(left) == left


def test_what_is_stretched_stays_one() -> None:
    atoms = Atoms()
    short, long = run(atoms, 1, 5), run(atoms, 5)
    atoms.same(short, long)
    assert atoms.is_fixed(short[0])
    assert not atoms.is_fixed(atoms.resolve(long)[0])


def test_a_cut_leaves_one_tile() -> None:
    atoms = Atoms()
    base, count, loop = axis(atoms, 24), atoms.fresh(2, AtomKind.GRID), atoms.fresh(3, AtomKind.LOOP)
    tile = atoms.cut(0, base, (0, 3), (count, loop), 4)
    assert atoms.cut(0, base, (0, 3), (count, loop), 4) == tile
    assert atoms.cut(1, base, (0, 3), (count, loop), 4) != tile
    assert atoms.normal((count, loop, *tile)) == base
    assert atoms.normal((count, *tile)) == (count, *tile)
    assert atoms.continued((loop,), tile) == (loop, *tile)
    assert atoms.continued((count,), (loop, *tile)) == base
    assert atoms.continued((count,), tile) is None


def test_tiles_cut_alike_make_their_axes_one() -> None:
    atoms = Atoms()
    loop = atoms.fresh(4, AtomKind.LOOP)
    x, w, v = axis(atoms, 12), axis(atoms, 12), axis(atoms, 16)
    tiles = [atoms.cut(0, base, (3,), (loop,), atoms.extent(base) // 4) for base in (x, w, v)]
    atoms.same(tiles[0], tiles[1])
    atoms.settle()
    assert atoms.resolve(x) == atoms.resolve(w) != atoms.resolve(v)


def test_axes_made_one_make_their_tiles_one() -> None:
    atoms = Atoms()
    loop = atoms.fresh(4, AtomKind.LOOP)
    x, w = axis(atoms, 12), axis(atoms, 12)
    tiles = [atoms.cut(0, base, (3,), (loop,), 3) for base in (x, w)]
    atoms.same(x, w)
    atoms.settle()
    assert atoms.resolve(tiles[0]) == atoms.resolve(tiles[1])


def test_a_tile_of_a_product_is_aligned_when_it_is_split() -> None:
    """16 splits * 64 columns, looped 4 times: a tile of 256 holds 4 splits, and 64 columns of it are the columns."""
    atoms = Atoms()
    splits, columns, loop = axis(atoms, 16), axis(atoms, 64), atoms.fresh(4, AtomKind.LOOP)
    tile = atoms.cut(0, splits + columns, (3,), (loop,), 256)
    assert len(atoms.resolve(tile)) == 1
    parts = run(atoms, 4, 64)
    atoms.same(tile, parts)
    assert extents(atoms, splits) == [4, 4]
    assert atoms.resolve(parts)[1:] == columns
    assert atoms.resolve((*splits, *columns)) == atoms.resolve((loop, *tile))


def test_tiles_of_one_element_are_not_mixed_up() -> None:
    """A tile of one row and a tile of one column say nothing about rows and columns; both stay 1."""
    atoms = Atoms()
    x, y = atoms.fresh(4, AtomKind.GRID), atoms.fresh(4, AtomKind.GRID)
    rows, columns = axis(atoms, 4), axis(atoms, 4)
    row, column = atoms.cut(0, rows, (0,), (x,), 1), atoms.cut(0, columns, (1,), (y,), 1)
    atoms.same(row, column)
    atoms.settle()
    assert atoms.resolve(rows) != atoms.resolve(columns)
    assert atoms.is_fixed(row[0])
    assert not atoms.is_unit(row)
    assert atoms.is_unit(axis(atoms, 1))


def test_concatenations_of_the_same_parts_are_one() -> None:
    atoms = Atoms()
    a, b, c = axis(atoms, 3), axis(atoms, 4), axis(atoms, 3)
    joined = atoms.join((a, b))
    assert atoms.extent(joined) == 7
    assert atoms.join((a, b)) == joined
    other = atoms.join((c, b))
    assert other != joined
    atoms.same(joined, other)
    atoms.settle()
    assert atoms.resolve(a) == atoms.resolve(c)


def test_dimensions_of_one_tensor_clash() -> None:
    clashes: list[tuple[int, int]] = []
    atoms = Atoms(lambda x, y: clashes.append((x, y)))
    a, b, c = (axis(atoms, 6) for _ in range(3))
    atoms.beside([a, b])
    assert not clashes
    assert atoms.would_clash(a, b)
    assert not atoms.would_clash(a, c)
    atoms.same(a, c)
    assert not clashes
    atoms.same(c, b)
    assert len(clashes) == 1
    atoms.beside([a, a])
    assert len(clashes) == 2


def test_parts_clash_as_the_whole_does() -> None:
    clashes: list[int] = []
    atoms = Atoms(lambda x, y: clashes.append(x))
    whole, other = axis(atoms, 12), axis(atoms, 3)
    atoms.beside([whole, other])
    atoms.same(whole, run(atoms, 4, 3))
    assert not clashes
    assert atoms.would_clash(whole[:1], (atoms.resolve(other)[0],))
