"""Files by content: whole or absent, found again, borders of parts count."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.codegen.cuda.content_cache import ContentCache, content_hash, user_cache_folder


def test_hash_depends_on_every_part_and_border() -> None:
    assert content_hash("ab", "c") != content_hash("a", "bc")
    assert content_hash("a", b"b") == content_hash(b"a", "b")
    assert content_hash("a") != content_hash("a", "")


def test_store_and_load(tmp_path: Path) -> None:
    store = ContentCache(tmp_path / "new" / "folder")
    assert store.load("x") is None
    path = store.store("x", b"data", mode=0o755)
    assert store.load("x") == b"data"
    assert path.stat().st_mode & 0o777 == 0o755
    store.store("x", b"other")
    assert [p.name for p in path.parent.iterdir()] == ["x"]
    assert store.load("x") == b"other"


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="no space"):
        ContentCache(tmp_path).store("x", b"data")
    assert list(tmp_path.iterdir()) == []


def test_user_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert user_cache_folder("cubin") == tmp_path / "mugraph-workbench" / "cubin"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert user_cache_folder("cubin").parts[-3:] == (".cache", "mugraph-workbench", "cubin")
