"""Where a run keeps what it has: the search's record, the answer, the best graph; and whether an answer is of this request.

Invariant: a file is written whole or not at all; an answer counts only for the very same program, device, space, seed and
version of the workbench.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from workbench.codegen.cuda.content_cache import content_hash, user_cache_folder
from workbench.errors import FormatError, UsageError
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.serialize import dumps

SCHEMA, VERSION = "mugraph-workbench/result", 1
RESULT, SEARCH, BEST, SPACES = "result.json", "search.jsonl", "best.ugraph.json", "spaces.json"
_IS_RECORD = re.compile(re.escape(SEARCH).replace(r"\.", r"(-\d+)?\.", 1))


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for; `options` are plain values that the answer depends on."""

    program: KernelGraph
    device: str
    options: Mapping[str, object]

    @property
    def key(self) -> str:
        """The same for requests that have the same answer, 32 hexadecimal digits."""
        return content_hash(
            self.program.hash, self.device, json.dumps(dict(self.options), sort_keys=True, default=str), code_digest()
        )


@cache
def code_digest() -> str:
    """Return a hash of the workbench's own source, so that an answer of another version is not taken for one of this."""
    root = resources.files("workbench")
    texts: list[bytes] = []
    pending = [root]
    while pending:
        for entry in sorted(pending.pop().iterdir(), key=lambda item: item.name):
            if entry.is_dir() and entry.name != "__pycache__":
                pending.append(entry)
            elif entry.name.endswith((".py", ".cuh", ".h", ".cpp")):
                texts += [entry.name.encode(), entry.read_bytes()]
    return content_hash(*texts)


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path, request: Request) -> None:
        """Name the folder; it is made at the first write. Raises: UsageError where something else has the name."""
        if path.exists() and not path.is_dir():
            raise UsageError(f"{path}: is no folder; name one for the run")
        self.path, self.request = path, request

    @classmethod
    def default(cls, request: Request) -> RunFolder:
        """Return the folder for a request for which none was named, in the user's cache."""
        return cls(user_cache_folder("runs") / request.key, request)

    def record(self, part: int) -> Path:
        """Return the file for a part's search; of a program in one piece it is `search.jsonl`."""
        self.path.mkdir(parents=True, exist_ok=True)
        return self.path / (SEARCH if part == 0 else SEARCH.replace(".", f"-{part}.", 1))

    def chosen_space(self, part: int) -> int | None:
        """Return the operators of the space that an earlier call chose for a part, None if none did.

        Raises: FormatError for a damaged file, OSError.
        """
        return self._spaces().get(str(part))

    def choose_space(self, part: int, max_block_ops: int) -> None:
        """Keep the operators of the space that was chosen for a part."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_whole(self.path / SPACES, json.dumps({**self._spaces(), str(part): max_block_ops}) + "\n")

    def _spaces(self) -> dict[str, int]:
        file = self.path / SPACES
        if not file.is_file():
            return {}
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise FormatError(
                f"{file}: is no JSON ({error}); delete it and the records of searches beside it"
            ) from error
        if not isinstance(found, dict) or not all(type(count) is int for count in found.values()):
            raise FormatError(f"{file}: is no table of chosen spaces; delete it and the records of searches beside it")
        return found

    def forget_searches(self) -> None:
        """Remove the records of searches, and no other file."""
        for file in _records(self.path):
            file.unlink(missing_ok=True)
        (self.path / SPACES).unlink(missing_ok=True)

    def forget_answer(self) -> None:
        """Remove the answer and its graph, so that what was begun after it continues when it is stopped."""
        for name in (RESULT, BEST):
            (self.path / name).unlink(missing_ok=True)

    def answer(self) -> dict[str, object] | None:
        """Return what `result.json` holds if it is the finished answer to this request. Raises: FormatError, OSError."""
        found = self._kept()
        if found is None or found.get("version") != VERSION or found.get("key") != self.request.key:
            return None
        return None if found.get("interrupted") else found

    def is_of_another_request(self) -> bool:
        """Return whether the folder holds an answer, but to another request. Raises: FormatError, OSError."""
        found = self._kept()
        return found is not None and found.get("key") != self.request.key

    def _kept(self) -> dict[str, object] | None:
        """Return what `result.json` holds, None without one; a file that no run wrote is told, never written over."""
        file = self.path / RESULT
        if not file.is_file():
            return None
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise FormatError(f"{file}: is no JSON ({error}); delete it, or choose another folder") from error
        if not isinstance(found, dict) or found.get("schema") != SCHEMA:
            raise FormatError(f"{file}: is no result of a run; choose another folder")
        return found

    def write(self, values: Mapping[str, object], best: KernelGraph | None) -> None:
        """Write `result.json`, and the best graph if there is one. Raises: OSError."""
        self.path.mkdir(parents=True, exist_ok=True)
        if best is None:
            (self.path / BEST).unlink(missing_ok=True)  # an earlier answer's
        else:
            write_whole(self.path / BEST, dumps(best) + "\n")
        write_whole(self.path / RESULT, json.dumps({**values, "key": self.request.key}, indent=1) + "\n")


def run_files(path: Path) -> list[str]:
    """Return the names of a run's files that are in a folder: answer, records of searches, chosen spaces, best graph."""
    return [name for name in (RESULT, *(file.name for file in _records(path)), SPACES, BEST) if (path / name).is_file()]


def _records(path: Path) -> list[Path]:
    """Return the records of searches in a folder: `search.jsonl`, and one for each further part."""
    found = [file for file in path.glob(SEARCH.replace(".", "*.", 1)) if _IS_RECORD.fullmatch(file.name)]
    return sorted(found, key=lambda file: (len(file.name), file.name))


def write_whole(path: Path, text: str) -> None:
    """Write a file under a passing name, then rename it: readers see all of it or nothing. Raises: OSError."""
    handle, passing = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(passing, 0o644)
        os.replace(passing, path)
    except BaseException:
        os.unlink(passing)
        raise
