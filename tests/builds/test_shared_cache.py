"""Finished tasks in a store that a team shares: what is taken from it, what is put into it, and what it may not do."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from build_graphs import shell, write_plan
from store_servers import HttpStore, http_store, s3_store

pytest.importorskip("obstore", reason="pip install 'bolt-build[shared,test]'")

from bolt_build.build.caching.cache import Cache, RefusedEntry
from bolt_build.build.caching.caches import Caches, Origin
from bolt_build.build.claim import directory_claim
from bolt_build.build.events import EventKind, TaskEvent
from bolt_build.build.running.session import SessionOptions, SessionPart, run_session
from bolt_build.build.sharing.cache import SharedCache
from bolt_build.build.sharing.client import StoreClient
from bolt_build.build.sharing.store import StoreTrouble, open_store
from bolt_build.schema.shared_place import SharedPlace

KEY = hashlib.sha256(b"a task").hexdigest()
OTHER = hashlib.sha256(b"another task").hexdigest()
PATIENCE = 60.0
"""Seconds that a store gets to answer; a store that hangs gets fewer."""


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    pytest.importorskip("moto.server", reason="pip install 'bolt-build[shared,test]'")
    with s3_store() as url:
        yield url


@pytest.fixture
def server() -> Iterator[HttpStore]:
    with http_store() as found:
        yield found


@pytest.fixture(params=["directory", "s3", "http"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind."""
    if request.param == "directory":
        return str(tmp_path / "team")
    if request.param == "http":
        return str(request.getfixturevalue("server").url)
    return f"{request.getfixturevalue('bucket')}/{hashlib.sha256(str(tmp_path).encode()).hexdigest()}"


def writer(url: str) -> SharedCache:
    return SharedCache(StoreClient(SharedPlace(url, write=True, timeout=PATIENCE)))


def reader(url: str) -> SharedCache:
    return SharedCache(StoreClient(SharedPlace(url, timeout=PATIENCE)))


def put(cache: SharedCache, folder: Path, key: str = KEY, **outputs: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, data in outputs.items():
        (folder / name).write_bytes(data)
        made.append((name, folder / name, hashlib.sha256(data).hexdigest()))
    cache.store(key, made)


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*")) if folder.exists() else []


def test_what_one_puts_another_takes(url: str, tmp_path: Path) -> None:
    program = tmp_path / "made" / "program"
    program.parent.mkdir()
    program.write_bytes(b"#!/bin/sh\n")
    program.chmod(0o755)
    writer(url).store(KEY, [("program", program, hashlib.sha256(b"#!/bin/sh\n").hexdigest())])
    assert not reader(url).fetch(OTHER, ["program"], tmp_path / "none")
    assert reader(url).fetch(KEY, ["program"], tmp_path / "to")
    assert (tmp_path / "to" / "program").read_bytes() == b"#!/bin/sh\n"
    assert (tmp_path / "to" / "program").stat().st_mode & 0o111 == 0o111
    (found,) = reader(url).lookup(KEY, ["program"]) or ()
    assert (found.size, found.executable) == (10, True)
    assert left(tmp_path / "none") == []


def test_a_reader_writes_nothing(url: str, tmp_path: Path) -> None:
    Path(url).mkdir() if url.startswith("/") else None
    put(reader(url), tmp_path / "made", a=b"contents")
    assert not reader(url).fetch(KEY, ["a"], tmp_path / "to")


def test_what_is_there_stays_what_it_is(url: str, tmp_path: Path) -> None:
    """Of two that make one task otherwise, the first is believed by everybody."""
    put(writer(url), tmp_path / "first", a=b"first")
    put(writer(url), tmp_path / "second", a=b"second")
    assert reader(url).fetch(KEY, ["a"], tmp_path / "to")
    assert (tmp_path / "to" / "a").read_bytes() == b"first"


def test_many_writers_at_once_leave_whole_entries(url: str, tmp_path: Path) -> None:
    """Two of each task, all with contents in common; whoever reads meanwhile takes all of a task or nothing."""
    keys = [hashlib.sha256(bytes([n])).hexdigest() for n in range(8)]
    begin = threading.Barrier(4)

    def write(part: int) -> None:
        own = writer(url)
        begin.wait()
        for n, key in enumerate(keys):
            put(own, tmp_path / f"w{part}-{n}", key, common=b"common" * 1000, own=key.encode())

    def read(part: int) -> int:
        own, taken = reader(url), 0
        begin.wait()
        for n, key in enumerate(keys * 3):
            to = tmp_path / f"r{part}-{n}"
            if own.fetch(key, ["common", "own"], to):
                assert (to / "own").read_bytes() == key.encode()
                taken += 1
            else:
                assert left(to) == []
        return taken

    Path(url).mkdir() if url.startswith("/") else None
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(write, 0), pool.submit(write, 1), pool.submit(read, 0), pool.submit(read, 1)]
        for job in jobs:
            job.result()
    for n, key in enumerate(keys):
        assert reader(url).fetch(key, ["common", "own"], tmp_path / f"end-{n}")


def test_contents_come_before_the_entry_that_names_them(server: HttpStore, tmp_path: Path) -> None:
    put(writer(server.url), tmp_path / "made", a=b"one", b=b"two")
    puts = [request.split("/")[2] for request in server.requests if request.startswith("PUT")]
    assert puts == ["blobs", "blobs", "entries"]


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (lambda name, data: data[:-1] + b"!" if "/blobs/" in name else data, "holds a damaged a"),
        (lambda name, data: data[:-1] if "/blobs/" in name else data, "holds a damaged a"),
        (lambda name, data: data * 100_000 if "/blobs/" in name else data, "holds a damaged a"),
        (lambda name, data: b"{" if "/entries/" in name else data, "is damaged"),
        (lambda name, data: b" " * (1 << 21) + data if "/entries/" in name else data, "is damaged"),
        (lambda name, data: data.replace(KEY.encode(), OTHER.encode()), "was changed"),
        (lambda name, data: data.replace(b'"size": 8', b'"size": 9'), "was changed"),
    ],
)
def test_a_store_that_lies_is_found_out(server: HttpStore, tmp_path: Path, lie: object, said: str) -> None:
    put(writer(server.url), tmp_path / "made", a=b"contents")
    server.answer = lie  # type: ignore[assignment]
    with pytest.raises(RefusedEntry) as raised:
        reader(server.url).fetch(KEY, ["a"], tmp_path / "to")
    assert str(raised.value) == said
    assert left(tmp_path / "to") == []


def test_an_entry_counts_for_its_own_task_alone(server: HttpStore, tmp_path: Path) -> None:
    """One that a store gives in the place of another, whole and sealed."""
    put(writer(server.url), tmp_path / "made", OTHER, a=b"foreign code")
    (name,) = server.named("entries")
    server.objects[name.replace(f"{OTHER[:2]}/{OTHER}", f"{KEY[:2]}/{KEY}")] = server.objects[name]
    with pytest.raises(RefusedEntry, match="is another task's"):
        reader(server.url).fetch(KEY, ["a"], tmp_path / "to")


def test_names_in_an_entry_lead_nowhere_else(server: HttpStore, tmp_path: Path) -> None:
    """Outputs have the names that the task gives them, whatever the entry says."""
    put(writer(server.url), tmp_path / "made", a=b"contents")
    (name,) = server.named("entries")
    server.objects[name] = server.objects[name].replace(b'"name": "a"', b'"name": "../a"')
    with pytest.raises(RefusedEntry, match="was changed"):
        reader(server.url).fetch(KEY, ["a"], tmp_path / "to")
    assert left(tmp_path / "to") == []


def test_an_entry_whose_contents_are_gone_is_none(server: HttpStore, tmp_path: Path) -> None:
    put(writer(server.url), tmp_path / "made", a=b"one", b=b"two")
    del server.objects[server.named("blobs")[1]]
    assert not reader(server.url).fetch(KEY, ["a", "b"], tmp_path / "to")
    assert left(tmp_path / "to") == []


def trouble(cache: SharedCache, to: Path) -> str:
    with pytest.raises(StoreTrouble) as raised:
        cache.fetch(KEY, ["a"], to)
    assert left(to) == []
    return str(raised.value)


def test_a_store_that_hangs_is_waited_for_once(server: HttpStore, tmp_path: Path) -> None:
    server.hangs = True
    cache = SharedCache(StoreClient(SharedPlace(server.url, timeout=0.4)))
    assert trouble(cache, tmp_path / "to") == "does not answer within 0.4 s"
    asked = len(server.requests)
    assert not cache.fetch(KEY, ["a"], tmp_path / "to")
    assert cache.lookup(OTHER, ["a"]) is None
    assert len(server.requests) == asked


def test_a_store_that_dies_in_the_middle_of_contents(server: HttpStore, tmp_path: Path) -> None:
    put(writer(server.url), tmp_path / "made", a=b"contents")
    server.answer = lambda name, data: None if "/blobs/" in name else data
    assert trouble(reader(server.url), tmp_path / "to") == "breaks off in the middle of an answer"


def test_a_store_that_is_not_there(tmp_path: Path) -> None:
    with http_store() as server:
        url = server.url
    assert trouble(reader(url), tmp_path / "to") == "cannot be reached"
    assert trouble(reader(str(tmp_path / "nowhere")), tmp_path / "to") == "is not there"
    (tmp_path / "file").write_text("")
    assert trouble(reader(str(tmp_path / "file")), tmp_path / "to") == "is no directory"


def test_a_directory_that_everybody_can_write_is_not_asked(tmp_path: Path) -> None:
    folder = tmp_path / "team"
    put(writer(str(folder)), tmp_path / "made", a=b"contents")
    folder.chmod(0o777)
    why = "can be written by everybody: whoever writes into it can put code into engines"
    assert trouble(reader(str(folder)), tmp_path / "to") == why
    folder.chmod(0o775)
    assert reader(str(folder)).fetch(KEY, ["a"], tmp_path / "to")


def test_a_store_that_refuses_to_be_written_is_still_read(server: HttpStore, tmp_path: Path) -> None:
    put(writer(server.url), tmp_path / "made", a=b"contents")
    server.refuses = True
    cache = writer(server.url)
    with pytest.raises(StoreTrouble, match="refuses access: 403 Forbidden"):
        put(cache, tmp_path / "made", OTHER, a=b"more")
    put(cache, tmp_path / "made", OTHER, a=b"more")
    assert cache.fetch(KEY, ["a"], tmp_path / "to")


def test_a_password_in_a_url_is_not_printed(tmp_path: Path) -> None:
    with http_store() as server:
        url = server.url.replace("http://", "http://me:secret@")
    notes: list[str] = []
    caches = Caches(None, reader(url))
    for key in (KEY, OTHER):
        assert caches.fetch(key, ["a"], tmp_path, notes.append) is Origin.MADE
    address = url.replace("me:secret@", "")
    assert notes == [f"the shared cache {address} cannot be reached: the build goes on without it"]


def test_the_local_cache_is_asked_first_and_filled(server: HttpStore, tmp_path: Path) -> None:
    made = tmp_path / "a"
    made.write_bytes(b"contents")
    outputs = [("a", made, hashlib.sha256(b"contents").hexdigest())]
    caches = Caches(Cache(tmp_path / "cache"), writer(server.url))
    caches.store(KEY, outputs, Origin.MADE, print)
    server.requests.clear()
    assert caches.fetch(KEY, ["a"], tmp_path / "local", print) is Origin.LOCAL
    assert server.requests == []
    other = Caches(Cache(tmp_path / "other"), reader(server.url))
    assert other.fetch(KEY, ["a"], tmp_path / "shared", print) is Origin.SHARED
    other.store(KEY, outputs, Origin.SHARED, print)
    server.requests.clear()
    assert other.fetch(KEY, ["a"], tmp_path / "again", print) is Origin.LOCAL
    assert server.requests == []


def test_what_is_only_in_a_writers_own_cache_is_shared_when_it_is_used(server: HttpStore, tmp_path: Path) -> None:
    made = tmp_path / "a"
    made.write_bytes(b"contents")
    outputs = [("a", made, hashlib.sha256(b"contents").hexdigest())]
    caches = Caches(Cache(tmp_path / "cache"), writer(server.url))
    caches.store(KEY, outputs, Origin.LOCAL, print)
    assert len(server.named("entries")) == len(server.named("blobs")) == 1


def test_entries_are_those_of_a_local_cache(server: HttpStore, tmp_path: Path) -> None:
    """So that a local cache can be copied into a store, and out of one."""
    put(writer(server.url), tmp_path / "made", a=b"contents")
    local = Cache(tmp_path / "cache")
    local.store(KEY, [("a", tmp_path / "made" / "a", hashlib.sha256(b"contents").hexdigest())])
    (name,) = server.named("entries")
    assert json.loads(server.objects[name]) == json.loads(
        (tmp_path / "cache" / name.removeprefix("/team/")).read_text()
    )


@pytest.mark.parametrize("what", ["entries", "blobs"])
def test_a_pipe_in_a_directory_is_not_waited_for(tmp_path: Path, what: str) -> None:
    team = tmp_path / "team"
    put(writer(str(team)), tmp_path / "made", a=b"contents")
    (path,) = (path for path in (team / what).rglob("*") if path.is_file())
    path.unlink()
    os.mkfifo(path)
    found: list[bool] = []
    asking = threading.Thread(
        target=lambda: found.append(reader(str(team)).fetch(KEY, ["a"], tmp_path / "to")), daemon=True
    )
    asking.start()
    asking.join(PATIENCE)
    assert found == [False]
    assert left(tmp_path / "to") == []


def test_a_directory_opens_by_its_path_and_nothing_is_made_for_a_reader(tmp_path: Path) -> None:
    with pytest.raises(StoreTrouble, match="is not there"):
        open_store(SharedPlace(str(tmp_path / "team")))
    assert left(tmp_path) == []
    open_store(SharedPlace(str(tmp_path / "team"), write=True))
    assert left(tmp_path) == ["team"]


def built(root: Path, shared: SharedPlace) -> list[str]:
    """What a build of three tasks did with an empty cache of its own: `task`, `task*` from the store, or a note."""
    tasks = [shell(name, f'echo {name} > "$out/{name}.txt"', (f"{name}.txt",)) for name in ("one", "two", "three")]
    recipe = write_plan(root, *tasks)
    told: list[TaskEvent] = []
    options = SessionOptions(2, False, str(root / "cache"), 1 << 30, shared=shared)
    with directory_claim(recipe.path, wait=True, say=print) as claim:
        result = run_session([SessionPart(recipe.path, ("host",), claim)], options, told.append)
    assert (result.failed, result.trouble) == ((), "")
    shown = (EventKind.FINISHED, EventKind.NOTE)
    notes = [event.text for event in told if event.kind is EventKind.NOTE]
    assert len(set(notes)) == len(notes)
    assert [(recipe.target("host").path / f"{name}.txt").read_text() for name in ("one", "two")] == ["one\n", "two\n"]
    return sorted(e.text or e.task + "*" * e.shared for e in told if e.kind in shown)


def test_no_trouble_with_a_store_fails_a_build(server: HttpStore, tmp_path: Path) -> None:
    place = SharedPlace(server.url, write=True, timeout=PATIENCE)
    assert built(tmp_path / "first", place) == ["one", "three", "two"]
    assert built(tmp_path / "second", place) == ["one*", "three*", "two*"]
    server.answer = lambda name, data: data[:-2] + b"!\n" if "/blobs/" in name else data
    refused = [
        f"the entry in the shared cache holds a damaged {n}.txt: it is not taken" for n in ("one", "three", "two")
    ]
    assert built(tmp_path / "lies", place) == ["one", *refused, "three", "two"]
    server.answer = lambda name, data: None if "/blobs/" in name else data
    broken = "breaks off in the middle of an answer: the build goes on without it"
    assert built(tmp_path / "dies", place) == ["one", f"the shared cache {server.url} {broken}", "three", "two"]
    server.hangs = True
    hangs = "does not answer within 0.4 s: the build goes on without it"
    assert built(tmp_path / "hangs", SharedPlace(server.url, timeout=0.4)) == [
        "one", f"the shared cache {server.url} {hangs}", "three", "two",
    ]  # fmt: skip
