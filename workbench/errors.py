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


class UnknownTensorError(LegalityError):
    """An operand is not defined before it is used (a misspelt name, a wrong order, or a cycle)."""

    rule = "operands come first"


class DuplicateNameError(LegalityError):
    """Two tensors of one graph bear the same name."""

    rule = "names are unique"


class OperatorLevelError(LegalityError):
    """An operator stands in a graph of a level that cannot contain it."""

    rule = "operators belong to their level"


class ResultMismatchError(LegalityError):
    """A node's recorded result differs from what its operator yields."""

    rule = "results meet the operator's specification"


class LaunchDimsError(LegalityError):
    """Grid, block, cluster or loop counts are not usable."""

    rule = "launch dimensions"


class ImapError(LegalityError):
    """An input map names a dimension that the tensor does not have."""

    rule = "imap"


class FmapError(LegalityError):
    """A loop map names a dimension that the tensor does not have, or loops where there is no loop."""

    rule = "fmap"


class OmapError(LegalityError):
    """Blocks would write the same elements, or an output map names a dimension that does not exist."""

    rule = "omap"


class PlaceError(LegalityError):
    """A value of the loop body and a value of after the loop meet in one operator, or a path misses its accumulator."""

    rule = "one accumulator on every path"


class AccumulatorError(LegalityError):
    """An accumulator is used on what cannot be accumulated so."""

    rule = "accumulator"


class SaverError(LegalityError):
    """A block graph stores nothing, or stores a value of the loop body."""

    rule = "one output saver on every path"


class RaggedTileError(LegalityError):
    """Tiles that are not full meet in a way that has no one meaning."""

    rule = "ragged tiles"


class MemoryLimitError(LegalityError):
    """A level's tensors do not fit that level's memory."""

    rule = "tensors fit their memory"


class LayoutConflictError(WorkbenchError, ValueError):
    """No layouts satisfy all rules: carries a smallest set of rules that exclude each other.

    Attributes: rules: (name of the rule, where it applies), none of which can be left out of the conflict.
    """

    def __init__(self, rules: tuple[tuple[str, str], ...]) -> None:
        """Keep the rules as an attribute; `str()` lists them."""
        super().__init__(rules)
        self.rules = rules

    def __str__(self) -> str:
        """Return the rules that exclude each other."""
        listed = "; ".join(f"{name} ({where})" for name, where in self.rules)
        return f"no layouts satisfy these rules together: {listed}; price one of them instead of demanding it"


class ThreadGraphError(LegalityError):
    """A thread graph is not a tree of elementwise operators (with at most one contraction at its leaves)."""

    rule = "thread graph"


class OutsideLaxError(WorkbenchError, ValueError):
    """A value has no meaning in a finite field: a second exp on a path, or a power that is no integer or half-integer."""


class LaunchShapeError(WorkbenchError, ValueError):
    """Grid, block, cluster or shared memory of a launch are outside what a GPU takes, or contradict the source."""


class HostCompileError(WorkbenchError, RuntimeError):
    """A kernel cannot be built for this computer's processor: no C++ compiler, or its complaint."""


class HostRunError(WorkbenchError, RuntimeError):
    """A kernel misbehaved on the host (race, stray access, deadlock, ...) or was given arguments that do not fit.

    Attributes: kind (what went wrong, "arguments" if it never ran), line (1-based, in the whole source, or None).
    """

    def __init__(self, message: str, kind: str = "arguments", line: int | None = None) -> None:
        """Keep kind and line as attributes; `str()` is the message."""
        super().__init__(message, kind, line)
        self.message, self.kind, self.line = message, kind, line

    def __str__(self) -> str:
        """Return the message."""
        return self.message


class KernelCompileError(WorkbenchError, RuntimeError):
    """NVRTC or nvcc refused a source, or is missing; carries the compiler's lines.

    Attributes: log (the whole log).
    """

    def __init__(self, message: str, log: str = "") -> None:
        """Keep the log as an attribute; `str()` is the message."""
        super().__init__(message, log)
        self.message, self.log = message, log

    def __str__(self) -> str:
        """Return the message."""
        return self.message


class LaunchError(WorkbenchError, RuntimeError):
    """A kernel cannot be loaded or launched: wrong arguments, no GPU, too many resources, a fault on the device."""


class WorkerError(WorkbenchError, RuntimeError):
    """The worker process for the GPU cannot be started or spoken to."""


class DrawingError(WorkbenchError, RuntimeError):
    """A picture cannot be drawn: no drawing program, or it refuses the graph."""


class BudgetError(WorkbenchError, RuntimeError):
    """An exact computation was stopped because it outgrew its budget (terms, expressions, cells, seconds)."""


class NowhereDefinedError(WorkbenchError, ArithmeticError):
    """An expression has a value at almost no real point: it divides by zero, or takes the root of a negative number."""


class NothingFoundError(WorkbenchError, LookupError):
    """A search or superoptimization ended without a candidate."""


class EmitError(NotApplicableError):
    """The CUDA emitter does not claim this: carries the rule, the node and the cure; an expected outcome of search.

    Attributes: rule (what is not claimed), node (the node or tensor), cure (what to change).
    """

    def __init__(self, rule: str, node: str = "", cure: str = "") -> None:
        """Keep the parts as attributes; `str()` joins them in one line."""
        super().__init__(rule, node, cure)
        self.rule, self.node, self.cure = rule, node, cure

    def __str__(self) -> str:
        """Return `node: rule; cure`."""
        return (f"{self.node}: " if self.node else "") + self.rule + (f"; {self.cure}" if self.cure else "")
