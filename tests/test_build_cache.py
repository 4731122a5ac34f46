"""The local cache: what goes in comes out the same or not at all, and it stays within its limit."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from bolt_build.build.cache import Cache, CachedOutput, DamagedEntry, default_cache_directory
from bolt_build.digest import digest_bytes, digest_file
from bolt_build.errors import BoltError, ExitCode

KEY = "ab" + "0" * 62


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def put(cache: Cache, key: str, path: Path, contents: bytes) -> None:
    path.write_bytes(contents)
    cache.store(key, [("out/a", path, digest_file(path))])


def blobs(cache: Cache) -> list[Path]:
    return sorted((cache.directory / "blobs").glob("??/*"))


def test_what_was_stored_comes_back(cache: Cache, tmp_path: Path) -> None:
    put(cache, KEY, tmp_path / "a", b"contents")
    assert cache.lookup(KEY) == (CachedOutput("out/a", digest_bytes(b"contents"), False),)
    assert cache.fetch(KEY, ["out/a"], tmp_path / "to")
    assert (tmp_path / "to/out/a").read_bytes() == b"contents"


def test_programs_stay_programs(cache: Cache, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    cache.store(KEY, [("program", program, digest_file(program))])
    assert cache.fetch(KEY, ["program"], tmp_path / "to")
    assert os.access(tmp_path / "to/program", os.X_OK)


def test_an_unknown_key_is_a_miss(cache: Cache, tmp_path: Path) -> None:
    assert not cache.fetch(KEY, ["out/a"], tmp_path / "to")


def test_an_entry_of_other_outputs_is_a_miss(cache: Cache, tmp_path: Path) -> None:
    put(cache, KEY, tmp_path / "a", b"contents")
    assert not cache.fetch(KEY, ["out/a", "out/b"], tmp_path / "to")


@pytest.mark.parametrize("damage", [b"contentz", b"cont", b""])
def test_damaged_contents_are_found_out_and_removed(cache: Cache, tmp_path: Path, damage: bytes) -> None:
    put(cache, KEY, tmp_path / "a", b"contents")
    blobs(cache)[0].write_bytes(damage)
    with pytest.raises(DamagedEntry, match="out/a"):
        cache.fetch(KEY, ["out/a"], tmp_path / "to")
    assert cache.lookup(KEY) is None
    put(cache, KEY, tmp_path / "a", b"contents")
    assert cache.fetch(KEY, ["out/a"], tmp_path / "to")


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"name": "out/a"}]', "{}x"])
def test_a_damaged_key_is_a_miss(cache: Cache, tmp_path: Path, text: str) -> None:
    put(cache, KEY, tmp_path / "a", b"contents")
    (cache.directory / "keys" / "ab" / f"{KEY}.json").write_text(text)
    assert not cache.fetch(KEY, ["out/a"], tmp_path / "to")


def test_equal_contents_are_kept_once(cache: Cache, tmp_path: Path) -> None:
    put(cache, KEY, tmp_path / "a", b"contents")
    put(cache, "cd" + KEY[2:], tmp_path / "a", b"contents")
    assert len(blobs(cache)) == 1


def test_what_was_not_used_for_longest_goes_first(cache: Cache, tmp_path: Path) -> None:
    keys = [f"{n:02x}" + "0" * 62 for n in range(4)]
    for age, key in enumerate(reversed(keys)):
        put(cache, key, tmp_path / "a", key[:2].encode() * 500)
        for path in (*blobs(cache), *(cache.directory / "keys").glob("??/*")):
            if path.name.startswith((key, digest_file(tmp_path / "a"))):
                os.utime(path, (1000 + age, 1000 + age))
    assert cache.fetch(keys[3], ["out/a"], tmp_path / "to")  # the oldest, but used just now
    removed, left = cache.prune(2800)
    assert removed > 0
    assert left <= 2800
    assert cache.fetch(keys[3], ["out/a"], tmp_path / "to")
    assert not cache.fetch(keys[2], ["out/a"], tmp_path / "to")


def test_emptying_leaves_nothing(cache: Cache, tmp_path: Path) -> None:
    put(cache, KEY, tmp_path / "a", b"contents")
    assert cache.prune(0) == (2, 0)
    assert cache.lookup(KEY) is None


def test_the_default_place_is_the_users_cache_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/caches")
    assert default_cache_directory() == Path("/var/caches/bolt-build")
    for unusable in ("", "relative/caches"):
        monkeypatch.setenv("XDG_CACHE_HOME", unusable)
        assert default_cache_directory() == Path("/home/somebody/.cache/bolt-build")


def test_without_a_home_a_place_has_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An account that no one knows, as in containers."""

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(BoltError) as caught:
        default_cache_directory()
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.message == "there is no home directory for the cache"
    assert diagnostic.hint == "name a place with --cache DIR, or set HOME"
    assert caught.value.exit_code is ExitCode.USAGE
