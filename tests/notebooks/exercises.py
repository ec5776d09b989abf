"""Answers given to the exercises' own checks. Invariant: a cell made here fails unless the check takes the right answer only."""

from __future__ import annotations

import ast
from typing import Any

GIVEN: dict[str, tuple[tuple[str, str, str], ...]] = {
    "00": (("my_bytes", "my_bytes", "my_bytes + 1"),),
    "01": (("my_keys", "my_keys", "4096"),),
    "02": (("my_body", "my_body", "lambda block, X, W1, W2: block"),),
    "03": (
        ("product, of_the_sum, sum_of_both", "(product, of_the_sum, sum_of_both)", "(1, 1, 1)"),
        ("my_count", "sum(held)", "len(held)"),
    ),
    "04": (
        ("t0, t1, A, dropped", "(t0, t1, A, False)", "(t0, t1, A, True)"),
        ("my_term", "my_term", "ex.mul(Z, W)"),
    ),
    "05": (("my_share", "my_share", "my_share / 2"),),
    "06": (("my_mlp", "in_halves", "lambda X, W1, W2: X @ W1 @ W2"),),
    "07": (("answer_5", "answer", "answer[::-1]"), ("answer_barriers", "(fewest, most)", "(most, fewest)")),
    "08": (("answer_6", "answer", "answer[::-1]"), ("answer_floor", "answer", "{'another'} | answer")),
    "09": (
        ("answer_blocks", "min(by_registers, by_memory, 2048 // 256)", "2048 // 256"),
        ("answer_line", "answer", "-1"),
    ),
    "10": (("answer_stages", "answer", "answer + 1"), ("answer_key", "answer", "'ours_us'")),
    "11": (
        ("my_lora", "answer", "lambda X, W, A, B: X @ W + X @ A @ B @ B"),
        ("answer_blocks", "answer", "answer + 1"),
    ),
    "12": (("my_function", "answer", "lambda X, W: X @ W"), ("answer_section", "1", "3")),
}
"""By notebook, for each exercise in order: the name that is assigned, the right answer as its answer cell has it, a wrong one."""


def check_cell(source: str, name: str, right: str, wrong: str) -> str:
    """Return code that runs an exercise's cell with a wrong answer and with the right one, and asserts what it says.

    Raises: LookupError if the cell does not assign the dots to the name, or does not end in its check.
    """
    tree = ast.parse(source)
    last = tree.body[-1]
    holes = [node for node in tree.body if isinstance(node, ast.Assign) and _target(node) == name]
    if len(holes) != 1 or not isinstance(last, ast.Expr):
        raise LookupError(f"the cell does not assign {name}, or does not end in its check")
    if {part.value for part in ast.walk(holes[0].value) if isinstance(part, ast.Constant)} != {...}:
        raise LookupError(f"{name} is not left open")
    holes[0].value = ast.Name("_given")
    tree.body[-1] = ast.Assign([ast.Name("_outcome")], last.value, lineno=0)
    block = ast.unparse(ast.fix_missing_locations(tree))
    return "\n".join(
        [
            f"_right, _wrong = {right}, {wrong}",
            f"_given = _wrong\n{block}\nassert _outcome.right is False, 'a wrong answer passes'",
            f"_given = _right\n{block}\nassert _outcome.right, _outcome",
        ]
    )


def _target(node: ast.Assign) -> str:
    return ast.unparse(node.targets[0]).strip("()")


def with_checks(notebook: Any, number: str, new_cell: Any) -> list[Any]:
    """Put such a cell behind the answers of each exercise; return these cells. Raises: LookupError, ValueError."""
    cells = notebook.cells
    tags = [cell.metadata.get("tags", []) for cell in cells]
    exercises = [at for at, names in enumerate(tags) if any(name.startswith("exercise") for name in names)]
    made = []
    for at, (name, right, wrong) in reversed(list(zip(exercises, GIVEN[number], strict=True))):
        end = at + 1
        while "answer" in tags[end]:
            end += 1
        made.append(new_cell(check_cell(cells[at].source, name, right, wrong)))
        cells.insert(end, made[-1])
    return made
