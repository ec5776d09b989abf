"""Where built things are kept: files named by a hash of all that went into them, written whole or not at all.

Invariant: a file that is there is complete; two processes that build the same thing may both write it.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path


def user_cache_folder(name: str) -> Path:
    """Return the folder for cached files of one kind: $XDG_CACHE_HOME or ~/.cache, then mugraph-workbench/name."""
    root = os.environ.get("XDG_CACHE_HOME")
    base = Path(root) if root else Path.home() / ".cache"
    return base / "mugraph-workbench" / name


def content_hash(*parts: str | bytes) -> str:
    """Return 32 hex digits of the parts, their borders included."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class ContentCache:
    """A folder of files by content hash; made on the first write."""

    folder: Path

    def path(self, name: str) -> Path:
        """Return where a file of this name lies, whether or not it is there."""
        return self.folder / name

    def load(self, name: str) -> bytes | None:
        """Return the file's bytes, or None if it was never stored."""
        try:
            return self.path(name).read_bytes()
        except FileNotFoundError:
            return None

    def store(self, name: str, data: bytes, *, mode: int = 0o644) -> Path:
        """Write the file under a passing name, then rename it: readers see all of it or nothing."""
        self.folder.mkdir(parents=True, exist_ok=True)
        handle, passing = tempfile.mkstemp(dir=self.folder, prefix=f".{name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.chmod(passing, mode)
            os.replace(passing, self.path(name))
        except BaseException:
            os.unlink(passing)
            raise
        return self.path(name)
