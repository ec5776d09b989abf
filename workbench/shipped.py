"""Where the files that ship with the workbench are: `data/` and `notebooks/`.

Invariant: the same call finds them in a clone (beside the package) and in an installed wheel (inside the package).
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal


def shipped_path(folder: Literal["data", "notebooks"], *parts: str) -> Traversable:
    """Return a file or folder below `data/` or `notebooks/`; it need not exist.

    Raises: FileNotFoundError when the installation lacks the folder itself.
    """
    package = files("workbench")
    inside = package / folder
    if inside.is_dir():
        return inside.joinpath(*parts)
    beside = Path(str(package)).parent / folder
    if beside.is_dir():
        return beside.joinpath(*parts)
    raise FileNotFoundError(
        f"the installed workbench lacks its {folder}/ folder (looked at {inside} and {beside}); "
        "reinstall it with `pip install .` from a complete clone"
    )
