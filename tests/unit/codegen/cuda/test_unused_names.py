"""Declarations that nothing reads go; those that something in their braces reads stay."""

from __future__ import annotations

import pytest

from workbench.codegen.cuda.unused_names import without_unused

NESTED = """\
{
  const int row = warp * 16;
  const int low = row + 1;
  const int col = lane;  // not row
  for (int e = 0; e < 2; e++) {
    const int row = e;
    x[row] = 0.0f;
  }
  {
    y[col] = 0.0f;
  }
}
const int row = 2;
z[row] = 0.0f;
"""


def test_what_is_read_by_what_goes_goes_too_and_a_name_declared_again_is_another() -> None:
    kept = without_unused(NESTED.splitlines())
    gone = [line for line in NESTED.splitlines() if line not in kept or line.strip() == "const int row = warp * 16;"]
    assert gone == ["  const int row = warp * 16;", "  const int low = row + 1;"]
    assert len(kept) == len(NESTED.splitlines()) - 2
    assert without_unused(kept) == kept


@pytest.mark.parametrize(
    ("value", "is_kept"),
    [
        ("(1), b = 2", True),
        ("f(c, (d)), b = g[h(1, 2)]", True),
        ("lesser(first + 2, c)", False),
        ("g[h(1, 2)] + lesser((c), d[0, 1])", False),
    ],
)
def test_a_declaration_of_several_names_stays(value: str, is_kept: bool) -> None:
    lines = [f"const int a = {value};", "f(b);"]
    assert without_unused(lines) == (lines if is_kept else lines[1:])


def test_a_name_in_a_comment_is_not_read() -> None:
    assert without_unused(["const int by = 1;  // split by rows", "f();  // by"]) == ["f();  // by"]
