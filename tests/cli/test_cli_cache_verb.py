"""`bolt-build cache`: what lies in a cache, whether it is what it says, and making room, here and in a team's store."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_servers import http_store, s3_store

pytest.importorskip("obstore", reason="pip install 'bolt-build[shared]'")

from bolt_build.build.caching.cache import Cache
from bolt_build.build.caching.cache_contents import LocalShelf
from bolt_build.build.sharing.cache import SharedCache
from bolt_build.build.sharing.client import StoreClient
from bolt_build.cli.main import main
from bolt_build.schema.shared_place import SharedPlace

KEYS = tuple(hashlib.sha256(bytes([n])).hexdigest() for n in range(4))


def output(tmp_path: Path, n: int) -> list[tuple[str, Path, str]]:
    path = tmp_path / f"made{n}"
    path.write_bytes(bytes([n]) * 1000)
    return [("out", path, hashlib.sha256(path.read_bytes()).hexdigest())]


def filled(url: str, tmp_path: Path) -> None:
    cache = SharedCache(StoreClient(SharedPlace(url, write=True, timeout=60.0)))
    for n, key in enumerate(KEYS):
        cache.store(key, output(tmp_path, n))


@pytest.fixture(params=["local", "directory", "s3"])
def words(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[str]]:
    """What names a cache with four tasks on the command line."""
    place = str(tmp_path / "cache")
    if request.param == "s3":
        pytest.importorskip("moto.server", reason="pip install 'bolt-build[test]'")
        with s3_store() as url:
            filled(url, tmp_path)
            yield ["--shared-cache", url, "--shared-cache-write"]
    elif request.param == "directory":
        filled(place, tmp_path)
        yield ["--shared-cache", place, "--shared-cache-write"]
    else:
        for n, key in enumerate(KEYS):
            Cache(Path(place)).store(key, output(tmp_path, n))
        yield ["--cache", place]


def said(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> str:
    assert main(["cache", *words]) == code
    shown = capsys.readouterr()
    return shown.out + shown.err


def test_what_lies_there_is_counted_checked_and_pruned(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(said(capsys, 0, "stats", *words, "--format", "json"))
    assert found["kinds"]["finished tasks"]["objects"] == 4
    assert found["kinds"]["their contents"] == {"objects": 4, "bytes": 4000}
    assert said(capsys, 0, "verify", *words).endswith(": all that lies there is what it says\n")
    left = json.loads(said(capsys, 0, "prune", "--keep", "3KB", *words, "--format", "json"))
    assert (left["removed"] > 0, left["bytes"] <= 3000) == (True, True)
    assert json.loads(said(capsys, 0, "stats", *words, "--format", "json"))["bytes"] == left["bytes"]


def test_text_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Cache(tmp_path / "cache").store(KEYS[0], output(tmp_path, 0))
    text = said(capsys, 0, "stats", "--cache", str(tmp_path / "cache")).replace(str(tmp_path), "")
    assert [line.split() for line in text.splitlines()] == [
        ["/cache:", "1.3", "kB"],
        ["finished", "tasks", "1", "309", "B"],
        ["their", "contents", "1", "1.0", "kB"],
    ]


@pytest.mark.parametrize("shared", [False, True])
def test_what_is_damaged_is_named_and_removed_by_who_may(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shared: bool
) -> None:
    place = tmp_path / "cache"
    if shared:
        filled(str(place), tmp_path)
    else:
        for n, key in enumerate(KEYS):
            Cache(place).store(key, output(tmp_path, n))
    blobs = sorted(place.glob("blobs/??/*"))
    (damaged, gone) = (hashlib.sha256(bytes([n]) * 1000).hexdigest() for n in (0, 1))
    next(path for path in blobs if path.name == damaged).write_bytes(b"?" * 1000)
    next(path for path in blobs if path.name == gone).unlink()
    broken = place / "entries" / KEYS[2][:2] / f"{KEYS[2]}.json"
    broken.write_text(broken.read_text().replace(KEYS[2], KEYS[3]))
    names = ["--shared-cache", str(place)] if shared else ["--cache", str(place)]
    wrong = sorted(
        [
            f"blobs/{damaged[:2]}/{damaged} is damaged",
            f"entries/{KEYS[2][:2]}/{KEYS[2]}.json was changed",
            f"entries/{KEYS[1][:2]}/{KEYS[1]}.json names blobs/{gone[:2]}/{gone}, which is not there",
        ]
    )
    if shared:
        assert sorted(said(capsys, 5, "verify", *names).splitlines()) == wrong
        names.append("--shared-cache-write")
    assert sorted(said(capsys, 5, "verify", *names).splitlines()) == sorted(f"{line}: removed" for line in wrong)
    # The entry of the contents that were damaged names nothing any more.
    assert said(capsys, 5, "verify", *names).count("which is not there: removed") == 1
    assert said(capsys, 0, "verify", *names).endswith(": all that lies there is what it says\n")


def test_what_is_no_file_of_the_cache_is_named_and_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache, place = Cache(tmp_path / "cache"), ["--cache", str(tmp_path / "cache")]
    for n, key in enumerate(KEYS):
        cache.store(key, output(tmp_path, n))
    link, pipe, open_to_all, _ = (tmp_path / "cache" / "entries" / key[:2] / f"{key}.json" for key in KEYS)
    link.rename(tmp_path / "elsewhere")
    link.symlink_to(tmp_path / "elsewhere")
    pipe.unlink()
    os.mkfifo(pipe)
    open_to_all.chmod(0o666)
    whys = {link: "is not a file", pipe: "is not a file", open_to_all: "can be written by others"}
    assert sorted(said(capsys, 5, "verify", *place).splitlines()) == sorted(
        f"entries/{path.parent.name}/{path.name} {why}: removed" for path, why in whys.items()
    )
    assert (tmp_path / "elsewhere").is_file()
    assert said(capsys, 0, "verify", *place).endswith(": all that lies there is what it says\n")


@pytest.mark.parametrize("verb", [("verify",), ("prune", "--keep", "0")])
def test_what_another_process_removes_meanwhile_is_no_trouble(
    verb: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path / "cache")
    for n, key in enumerate(KEYS):
        cache.store(key, output(tmp_path, n))
    listed = list(LocalShelf(cache).all())
    cache.prune(0)
    monkeypatch.setattr(LocalShelf, "all", lambda shelf: iter(listed))
    said(capsys, 0, *verb, "--cache", str(tmp_path / "cache"))


def test_a_task_whose_entry_names_what_is_gone_is_healed_by_the_next_writer(tmp_path: Path) -> None:
    place = tmp_path / "cache"
    filled(str(place), tmp_path)
    for path in place.glob("blobs/??/*"):
        path.unlink()
    filled(str(place), tmp_path)
    reader = SharedCache(StoreClient(SharedPlace(str(place))))
    assert all(reader.fetch(key, ["out"], tmp_path / key) for key in KEYS)


def test_the_oldest_go_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "cache"
    filled(str(place), tmp_path)
    for path in place.rglob("*"):
        os.utime(path, (2000, 2000))
    young = hashlib.sha256(bytes([3]) * 1000).hexdigest()
    for name in (f"blobs/{young[:2]}/{young}", f"entries/{KEYS[3][:2]}/{KEYS[3]}.json"):
        os.utime(place / name, (3000, 3000))
    said(capsys, 0, "prune", "--keep", "2KB", "--shared-cache", str(place), "--shared-cache-write")
    reader = SharedCache(StoreClient(SharedPlace(str(place))))
    assert [reader.fetch(key, ["out"], tmp_path / key) for key in KEYS] == [False, False, False, True]


def test_what_is_asked_wrongly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(tmp_path / "cache")
    assert said(capsys, 2, "prune", "--cache", place) == (
        "error[wrong-arguments]: prune wants to know how much to leave\n  hint: bolt-build cache prune --keep 20GB\n"
    )
    assert said(capsys, 2, "stats", "--keep", "1", "--cache", place).startswith(
        "error[wrong-arguments]: --keep is for prune\n"
    )
    assert said(capsys, 2, "prune", "--keep", "1", "--shared-cache", place) == (
        "error[not-a-writer]: pruning a team's store removes what others use\n  hint: say --shared-cache-write too\n"
    )


def test_a_server_that_lists_nothing_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    with http_store() as server:
        assert said(capsys, 4, "stats", "--shared-cache", server.url) == (
            f"error[shared-cache-trouble]: the shared cache {server.url} answers 501 Not Implemented\n"
            "  hint: listing needs a directory, a bucket or WebDAV; its own tools may do it\n"
        )


def test_measurements_are_checked_and_never_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = tmp_path / "cache" / "tuning" / "records.sqlite"
    records.parent.mkdir(parents=True, mode=0o700)
    records.write_text("not a database, and long enough to be told so by SQLite itself")
    assert "error[damaged-records]" in said(capsys, 5, "verify", "--cache", str(tmp_path / "cache"))
    assert records.exists()
