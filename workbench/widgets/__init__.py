"""The workbench in a notebook: five widgets over the view data.

Invariant: importing this loads no widget library; a class is loaded when it is first used (PEP 562).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.widgets.graph_explorer import GraphExplorer as GraphExplorer
    from workbench.widgets.launchpad import Launchpad as Launchpad
    from workbench.widgets.schedule_explorer import ScheduleExplorer as ScheduleExplorer
    from workbench.widgets.search_stepper import SearchStepper as SearchStepper
    from workbench.widgets.verifier_view import VerifierView as VerifierView

_PLACES = {
    "GraphExplorer": "graph_explorer",
    "Launchpad": "launchpad",
    "ScheduleExplorer": "schedule_explorer",
    "SearchStepper": "search_stepper",
    "VerifierView": "verifier_view",
}

__all__ = ["GraphExplorer", "Launchpad", "ScheduleExplorer", "SearchStepper", "VerifierView"]


def __getattr__(name: str) -> object:
    """Load a widget. Raises: AttributeError for a name that there is not."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
