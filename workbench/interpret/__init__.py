"""What does a program compute: one traversal, many domains."""

from workbench.interpret.floats import FloatDomain, evaluate
from workbench.interpret.walk import Domain, walk

__all__ = ["Domain", "FloatDomain", "evaluate", "walk"]
