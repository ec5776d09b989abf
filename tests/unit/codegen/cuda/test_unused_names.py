"""Declarations that nothing reads go; those that something in their braces reads stay."""

from __future__ import annotations

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


def test_a_name_in_a_comment_is_not_read() -> None:
    assert without_unused(["const int by = 1;  // split by rows", "f();  // by"]) == ["f();  // by"]
