"""The local cache: what goes in comes out the same or not at all, under its own name alone, and within its limit."""

from __future__ import annotations

import errno
import json
import os
import pwd
from pathlib import Path
from typing import NoReturn

import pytest

from bolt_build.build.caching.cache import Cache, CachedOutput, RefusedEntry, default_cache_directory
from bolt_build.build.caching.cache_folders import Untrusted
from bolt_build.digest import digest as seal
from bolt_build.digest import digest_bytes, digest_file
from bolt_build.errors import BoltError, ExitCode
from bolt_build.report.diagnostics import render

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
    assert cache.lookup(KEY, ["out/a"]) == (CachedOutput("out/a", digest_bytes(b"contents"), 8, False),)
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


def test_an_entry_of_other_outputs_is_refused(cache: Cache, tmp_path: Path) -> None:
    put(cache, KEY, tmp_path / "a", b"contents")
    with pytest.raises(RefusedEntry, match="is of other outputs"):
        cache.fetch(KEY, ["out/a", "out/b"], tmp_path / "to")


@pytest.mark.parametrize("damage", [b"contentz", b"cont", b""])
def test_damaged_contents_are_found_out_and_removed(cache: Cache, tmp_path: Path, damage: bytes) -> None:
    put(cache, KEY, tmp_path / "a", b"contents")
    blobs(cache)[0].write_bytes(damage)
    assert refusal(cache, tmp_path) == "holds a damaged out/a"
    assert cache.lookup(KEY, ["out/a"]) is None
    put(cache, KEY, tmp_path / "a", b"contents")
    assert cache.fetch(KEY, ["out/a"], tmp_path / "to")


def entry_path(cache: Cache, key: str = KEY) -> Path:
    return cache.directory / "entries" / key[:2] / f"{key}.json"


def refusal(cache: Cache, tmp_path: Path, key: str = KEY) -> str:
    """Why the entry is not taken: nothing is looked up in it either."""
    assert cache.lookup(key, ["out/a"]) is None or blobs(cache)
    with pytest.raises(RefusedEntry) as raised:
        cache.fetch(key, ["out/a"], tmp_path / "to")
    return str(raised.value)


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"outputs": [{"name": "out/a"}]}', "{}x", "[" * 100_000, "9" * 5000])
def test_a_damaged_entry_is_refused_and_removed(cache: Cache, tmp_path: Path, text: str) -> None:
    put(cache, KEY, tmp_path / "a", b"contents")
    entry_path(cache).write_text(text)
    assert refusal(cache, tmp_path) == "is damaged"
    assert not cache.fetch(KEY, ["out/a"], tmp_path / "to")


@pytest.mark.parametrize("digest", ["../../victim.txt", "/etc/passwd", "..", "", "A" * 64, "0" * 63, "0" * 63 + "\n"])
def test_what_is_no_digest_never_becomes_a_path(cache: Cache, tmp_path: Path, digest: str) -> None:
    victim = tmp_path / "victim.txt"
    victim.write_text("mine")
    put(cache, KEY, tmp_path / "a", b"contents")
    entry = json.loads(entry_path(cache).read_text())
    entry["outputs"][0]["digest"] = digest
    entry["seal"] = seal({name: value for name, value in entry.items() if name != "seal"})
    entry_path(cache).write_text(json.dumps(entry))
    assert refusal(cache, tmp_path) == "is damaged"
    assert victim.read_text() == "mine"


def test_an_entry_is_taken_for_its_own_task_alone(cache: Cache, tmp_path: Path) -> None:
    """Renamed, or put in the place of another."""
    other = "cd" + KEY[2:]
    put(cache, KEY, tmp_path / "a", b"contents")
    put(cache, other, tmp_path / "b", b"foreign code")
    entry_path(cache).write_bytes(entry_path(cache, other).read_bytes())
    assert refusal(cache, tmp_path) == "is another task's"
    assert cache.fetch(other, ["out/a"], tmp_path / "to")


def test_an_entry_that_points_to_other_contents_is_refused(cache: Cache, tmp_path: Path) -> None:
    """To such as the cache holds, and that are what they say."""
    put(cache, KEY, tmp_path / "a", b"contents")
    put(cache, "cd" + KEY[2:], tmp_path / "b", b"malicious")
    entry = entry_path(cache)
    entry.write_text(entry.read_text().replace(digest_bytes(b"contents"), digest_bytes(b"malicious")))
    assert refusal(cache, tmp_path) == "was changed"
    assert not (tmp_path / "to").exists()


def test_contents_that_changed_places_are_refused(cache: Cache, tmp_path: Path) -> None:
    put(cache, KEY, tmp_path / "a", b"contents")
    put(cache, "cd" + KEY[2:], tmp_path / "b", b"foreign!")
    first, second = blobs(cache)
    held, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(held)
    assert refusal(cache, tmp_path) == "holds a damaged out/a"


def test_what_is_no_file_is_not_waited_for(cache: Cache, tmp_path: Path) -> None:
    put(cache, KEY, tmp_path / "a", b"contents")
    entry_path(cache).unlink()
    os.mkfifo(entry_path(cache))
    assert refusal(cache, tmp_path) == "is not a file"
    put(cache, KEY, tmp_path / "a", b"contents")
    (blob,) = blobs(cache)
    blob.unlink()
    blob.symlink_to("/dev/zero")
    assert refusal(cache, tmp_path) == "holds out/a, which is not a file"


def test_nothing_outside_is_reached_through_links(cache: Cache, tmp_path: Path) -> None:
    """A folder of the cache that leads elsewhere: neither fetching, nor damage, nor pruning removes anything there."""
    put(cache, KEY, tmp_path / "a", b"contents")
    (blob,) = blobs(cache)
    elsewhere = tmp_path / "elsewhere"
    blob.parent.rename(elsewhere)
    blob.parent.symlink_to(elsewhere)
    (elsewhere / blob.name).write_bytes(b"damaged!")
    assert refusal(cache, tmp_path) == "holds out/a, which cannot be read: Not a directory"
    cache.prune(0)
    assert (elsewhere / blob.name).read_bytes() == b"damaged!"


def test_pruning_removes_nothing_that_the_cache_did_not_make(cache: Cache, tmp_path: Path) -> None:
    """The directory may be one that holds other things too."""
    put(cache, KEY, tmp_path / "a", b"contents")
    own = [cache.directory / "project" / "ab" / "thesis.txt", cache.directory / "blobs" / "ab" / "thesis.txt"]
    for path in own:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    assert cache.prune(0) == (2, 0)
    assert [path.read_text() for path in own] == ["mine", "mine"]


def test_a_new_cache_is_its_users_alone(tmp_path: Path) -> None:
    """Whatever the umask allows."""
    before = os.umask(0)
    try:
        cache = Cache(tmp_path / "cache")
        put(cache, KEY, tmp_path / "a", b"contents")
    finally:
        os.umask(before)
    assert cache.directory.stat().st_mode & 0o777 == 0o700
    assert not any(path.stat().st_mode & 0o022 for path in cache.directory.rglob("*"))
    cache.folders.check()


def complaint(cache: Cache) -> str:
    with pytest.raises(BoltError) as raised:
        cache.folders.check()
    assert raised.value.exit_code is ExitCode.USAGE
    return render(raised.value.diagnostics, color=False).replace(str(cache.directory), "CACHE")


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_cache_that_others_can_write_is_refused(cache: Cache, tmp_path: Path, mode: int) -> None:
    put(cache, KEY, tmp_path / "a", b"contents")
    cache.directory.chmod(mode)
    assert complaint(cache) == (
        "error[cache-not-private]: the cache CACHE can be written by others: whoever writes into it can put code into "
        "engines\n"
        "  hint: if nobody but you has written into it, chmod -R go-w CACHE; or name another with --cache DIR\n"
    )
    assert refusal(cache, tmp_path) == "can be written by others"
    with pytest.raises(Untrusted):
        put(cache, KEY, tmp_path / "a", b"contents")


def test_a_file_of_the_cache_that_others_can_write_is_refused(cache: Cache, tmp_path: Path) -> None:
    put(cache, KEY, tmp_path / "a", b"contents")
    entry_path(cache).chmod(0o666)
    assert refusal(cache, tmp_path) == "can be written by others"
    put(cache, KEY, tmp_path / "a", b"contents")
    blobs(cache)[0].parent.chmod(0o777)
    assert refusal(cache, tmp_path) == "holds out/a, which can be written by others"


def test_a_cache_of_another_user_is_taken_where_it_is_only_read(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(cache, KEY, tmp_path / "a", b"contents")
    if os.getuid() == 0:  # whose files nobody has to fear
        for path in (*cache.directory.rglob("*"), cache.directory):
            os.chown(path, 4242, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 1717)
    owner = "4242" if os.getuid() == 0 else f"'{pwd.getpwuid(os.getuid()).pw_name}'"
    assert complaint(cache) == (
        f"error[cache-not-private]: the cache CACHE belongs to the user {owner}: whoever writes into it can put code "
        "into engines\n"
        "  hint: name one of your own with --cache DIR; if you trust that user, --cache-read-only takes from this one\n"
    )
    shared = Cache(cache.directory, read_only=True)
    shared.folders.check()
    assert shared.fetch(KEY, ["out/a"], tmp_path / "to")
    cache.directory.chmod(0o775)
    assert "its owner can chmod -R go-w CACHE" in complaint(shared)


def test_a_cache_below_a_folder_of_another_user_says_where_one_may_lie(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stat(path: Path) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("bolt_build.build.caching.cache_folders.os.stat", stat)
    assert complaint(cache) == (
        "error[cache-not-reachable]: the cache CACHE lies where you may not look: Permission denied\n"
        "  hint: name one of your own with --cache DIR\n"
    )


def test_a_cache_that_is_only_read_stays_as_it_is(cache: Cache, tmp_path: Path) -> None:
    """Nothing is stored, removed, or marked as used."""
    put(cache, KEY, tmp_path / "a", b"contents")
    put(cache, "cd" + KEY[2:], tmp_path / "b", b"damaged")
    blob = next(path for path in blobs(cache) if path.read_bytes() == b"damaged")
    blob.write_bytes(b"DAMAGED")

    def state() -> list[tuple[str, int, int]]:
        found = ((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in cache.directory.rglob("*"))
        return sorted(found)

    before, shared = state(), Cache(cache.directory, read_only=True)
    assert shared.fetch(KEY, ["out/a"], tmp_path / "to")
    assert refusal(shared, tmp_path, "cd" + KEY[2:]) == "holds a damaged out/a"
    put(shared, "ef" + KEY[2:], tmp_path / "c", b"more")
    assert shared.prune(0)[0] == 0
    assert state() == before


def test_equal_contents_are_kept_once(cache: Cache, tmp_path: Path) -> None:
    put(cache, KEY, tmp_path / "a", b"contents")
    put(cache, "cd" + KEY[2:], tmp_path / "a", b"contents")
    assert len(blobs(cache)) == 1


def test_what_was_not_used_for_longest_goes_first(cache: Cache, tmp_path: Path) -> None:
    keys = [f"{n:02x}" + "0" * 62 for n in range(4)]
    for age, key in enumerate(reversed(keys)):
        put(cache, key, tmp_path / "a", key[:2].encode() * 500)
        for path in (*blobs(cache), *(cache.directory / "entries").glob("??/*")):
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
    assert cache.lookup(KEY, ["out/a"]) is None


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
