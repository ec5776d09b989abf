"""What can go wrong: every error the workbench raises, each with its numbers and its cure.

Invariant: each class derives from `WorkbenchError` and from the builtin a caller would expect, and pickles.
"""

from __future__ import annotations


class WorkbenchError(Exception):
    """Root of all errors of the workbench; `except WorkbenchError` catches exactly ours."""


class ShapeError(WorkbenchError, ValueError):
    """Operand shapes do not meet an operator's specification."""


class DTypeError(WorkbenchError, ValueError):
    """A data type is unknown, or known and not supported."""


class AttributeValueError(WorkbenchError, ValueError):
    """An operator's attribute is missing, unknown, or out of range."""


class UnknownNameError(WorkbenchError, LookupError):
    """A program, operator, tensor, preset or device of this name does not exist."""

    def __str__(self) -> str:
        """Return the message itself; `LookupError` subclasses of `KeyError` would quote it."""
        return str(self.args[0]) if self.args else ""


class MissingRuleError(WorkbenchError, LookupError):
    """A table that must be total has no rule for this operator; never answered by a default."""


class NotApplicableError(WorkbenchError):
    """A rewrite or an instantiation does not apply here: an expected outcome of search, caught only there."""


class LegalityError(WorkbenchError, ValueError):
    """A µGraph breaks a rule of definition 2.1; carries the rule, the node and the cure.

    Attributes: rule (name of the rule), node (name of the node or tensor), cure (what to change).
    """

    rule = "legality"

    def __init__(self, message: str, node: str = "", cure: str = "") -> None:
        """Keep the parts as attributes; `str()` joins them in one line."""
        super().__init__(message, node, cure)
        self.message, self.node, self.cure = message, node, cure

    def __str__(self) -> str:
        """Return `rule: node: message; cure`."""
        where = f"{self.node}: " if self.node else ""
        return f"{self.rule}: {where}{self.message}" + (f"; {self.cure}" if self.cure else "")


class FormatError(WorkbenchError, ValueError):
    """A file or text is not what it should be: broken JSON, an unknown schema version, a cyclic graph, a syntax error."""


class FieldError(WorkbenchError, ValueError):
    """A finite-field pair is not usable: not prime, q does not divide p - 1, a product would overflow."""


class UsageError(WorkbenchError, ValueError):
    """A command or call was given arguments that do not fit together."""
