from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from workbench.errors import FormatError
from workbench.ugraph.json_value import JsonValue, parse_json

DOCUMENT = parse_json(
    '{"a": [{"b": 1, "c": null}, "x"], "n": 2, "t": true, "f": 1.5, "q": "1/3", "big": 9007199254740993}'
)


def test_values_and_places() -> None:
    entry = DOCUMENT.field("a").items()[0]
    assert (entry.field("b").integer(), entry.field("b").place) == (1, "a[0].b")
    assert entry.optional("c") is entry.optional("missing") is None
    assert DOCUMENT.field("a").items()[1].text() == "x"
    assert (DOCUMENT.field("q").number(), DOCUMENT.field("n").number()) == (Fraction(1, 3), Fraction(2))
    assert [name for name, _ in DOCUMENT.entries()] == ["a", "n", "t", "f", "q", "big"]
    assert DOCUMENT.has("a")
    assert not DOCUMENT.field("n").has("a")


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda d: d.field("z"), "^the document: field 'z' is missing$"),
        (lambda d: d.field("n").field("z"), "^n: expected an object with a field 'z', found 2$"),
        (lambda d: d.field("n").items(), "^n: expected a list, found 2$"),
        (lambda d: d.field("a").integers(), r"^a\[0\]: expected an integer, found"),
        (lambda d: d.field("t").integer(), "^t: expected an integer, found true$"),
        (lambda d: d.field("f").integer(), "^f: expected an integer, found 1.5$"),
        (lambda d: d.field("big").integer(), "^big: expected an integer, found 9007199254740993$"),
        (lambda d: d.field("n").text(), "^n: expected a string, found 2$"),
        (lambda d: d.field("a").texts(), r"^a\[0\]: expected a string"),
        (lambda d: d.field("f").number(), "^f: expected an integer, found 1.5$"),
        (
            lambda d: JsonValue("1/0", "p").number(),
            r'^p: expected an exact number such as "1/3" \(its denominator is 0\)',
        ),
        (lambda d: d.only("a", "n"), "^the document: unknown field 't'; known: a, n$"),
        (lambda d: d.field("n").only("a"), "^n: expected an object, found 2$"),
        (lambda d: d.field("n").entries(), "^n: expected an object, found 2$"),
        (lambda d: JsonValue("y" * 100, "p").integer(), r'^p: expected an integer, found "y{56}\.\.\.$'),
    ],
)
def test_a_wrong_kind_of_value_is_said_with_its_place(read: Callable[[JsonValue], Any], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read(DOCUMENT)
