"""Is a reader's answer to an exercise right? Invariant: the right answer is computed by the caller and never shown."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

from workbench.display import Displayed


@dataclass(frozen=True, slots=True)
class Answer(Displayed):
    """What became of an answer. Attributes: right: None if there is none yet; words: what the reader is told."""

    right: bool | None
    words: str

    def describe(self) -> str:
        """Return the words, with a mark in front."""
        return f"{'…' if self.right is None else '✓' if self.right else '✗'} {self.words}"

    def __repr__(self) -> str:
        return self.describe()


def check_answer(answer: object, right: object, *, hint: str = "", tolerance: float = 1e-6) -> Answer:
    """Return whether an answer is right; `...` stands for one that was not given yet.

    right: the answer, or a function that says of an answer whether it is right. Numbers may differ by the relative
    tolerance. hint: is shown until the answer is right.
    """
    if answer is ...:
        return Answer(None, f"not answered yet. {hint}".strip())
    try:
        holds = right(answer) if callable(right) else _are_equal(answer, right, tolerance)
    except Exception as error:  # whatever a reader may have typed
        return Answer(False, f"{type(error).__name__}: {error}. {hint}".strip())
    return Answer(True, "right") if bool(holds) else Answer(False, f"{answer!r} is not it. {hint}".strip())


def _are_equal(answer: object, right: object, tolerance: float) -> bool:
    if isinstance(right, tuple | list):
        return (
            isinstance(answer, tuple | list)
            and len(answer) == len(right)
            and all(_are_equal(mine, its, tolerance) for mine, its in zip(answer, right, strict=True))
        )
    if isinstance(right, Real) and not isinstance(right, bool) and isinstance(answer, Real):
        return abs(float(answer) - float(right)) <= tolerance * max(1.0, abs(float(right)))
    return bool(answer == right)
