"""How prefixes are searched, and what all plans of a search read. Invariant: nothing here changes while a search runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from workbench.search.plans import Plan
from workbench.search.prefix.prefixes import Limits
from workbench.search.pruners.rule import Pruner
from workbench.search.shared import Shared
from workbench.search.verdicts import Verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How prefixes are searched.

    Attributes: pruners; unique: drop a prefix in which a kernel holds two tensors of equal expression; limits: of their
    own, else the space's; keep: a question asked about a prefix (by name) that some rule drops, True to keep it; start: a
    prefix to begin with, by name, all others are left out; quiet: say only what is complete; tests: verify what is
    complete; seconds: of process time, after which every plan ends (`Pruned` with the rule "time").
    """

    pruners: tuple[Pruner, ...] = ()
    unique: bool = True
    limits: Limits | None = None
    keep: Callable[[str], bool] | None = None
    start: str = ""
    quiet: bool = False
    tests: bool = True
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """What all plans of a search read: the program in its space, who verifies, and the options."""

    shared: Shared
    verifier: Verifier | None
    options: Options

    def limits(self, plan: Plan) -> Limits:
        """Return the limits in one plan."""
        if self.options.limits is not None:
            return self.options.limits
        kernels, space = 0, self.shared.space
        if space.kernel_palette and space.mapping == "axes" and self.shared.has_products:
            kernels = max(0, space.max_kernel_ops - len(plan.loops))
        return Limits(block=space.max_block_ops, kernels=kernels)
