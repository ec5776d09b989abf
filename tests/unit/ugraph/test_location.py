from __future__ import annotations

import pickle

import pytest

from workbench.errors import FormatError, ImapError, ShapeError, WorkbenchError
from workbench.ugraph.location import at_place, located


def test_places_read_from_the_outside_inwards_and_the_class_stays() -> None:
    with pytest.raises(ShapeError, match=r"^file\.json: node 3: 2 is not 3$"), located("file.json"), located("node 3"):
        raise ShapeError("2 is not 3")


def test_a_legality_error_keeps_rule_node_and_cure() -> None:
    placed = at_place(ImapError("no such dimension", "load x", "use 0"), "line 3")
    assert isinstance(placed, ImapError)
    assert (placed.message, placed.node, placed.cure) == ("no such dimension", "line 3: load x", "use 0")
    assert str(placed) == "imap: line 3: load x: no such dimension; use 0"
    assert str(at_place(ImapError("no such dimension"), "line 3")) == "imap: line 3: no such dimension"
    assert str(pickle.loads(pickle.dumps(placed))) == str(placed)


def test_notes_and_causes_are_kept() -> None:
    error = FormatError("broken")
    error.__cause__ = KeyError("x")
    error.add_note("seen before")
    with pytest.raises(FormatError) as caught, located("file"):
        raise error
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.__notes__ == ["seen before"]


def test_an_error_with_parts_of_its_own_becomes_a_format_error() -> None:
    class Numbers(WorkbenchError):
        def __init__(self, needed: int, allowed: int) -> None:
            super().__init__(needed, allowed)

        def __str__(self) -> str:
            return f"{self.args[0]} above {self.args[1]}"

    placed = at_place(Numbers(3, 2), "file")
    assert isinstance(placed, FormatError)
    assert str(placed) == "file: 3 above 2"


def test_other_errors_pass() -> None:
    with pytest.raises(ZeroDivisionError), located("file"):
        _ = 1 / 0
